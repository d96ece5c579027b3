"""Decode audio files to canonical PCM, by libsndfile or else by FFmpeg.

FFmpeg comes with the extra ``media``; without it MP4, AAC, WebM and the like cannot be decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, CanonicalStream
from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE

HAS_FFMPEG = find_spec("av") is not None
Block = tuple[int, NDArray[np.float32]]  # samples per second, samples [frames, channels]

BLOCK_SAMPLES = 65_536  # over all channels
# Before mixing and resampling, 8 channels of 48 kHz: a file of kilobytes can hold far more silence than that.
MAX_PCM_BYTES_PER_S = 8 * 48_000 * BYTES_PER_SAMPLE
# Demuxers that only read the bytes they are given. Playlists (HLS, DASH, concat) would open further files.
CONTAINERS = "aac,ac3,aiff,amr,ape,asf,avi,caf,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,w64,wav,wv"
# Recorders that cannot seek back leave the size of their data open: sizes from here on mean nothing.
OPEN_ENDED_BYTES = 0x7FFF_0000
OPEN_ENDED_FRAMES = 2**48  # libsndfile's number where the length is not known is larger
# Suffixes by which recordings are found in folders: those of libsndfile, then those of FFmpeg.
AUDIO_SUFFIXES = frozenset(
    ".aif .aifc .aiff .au .caf .flac .mp3 .oga .ogg .opus .rf64 .snd .sph .w64 .wav .wave"
    " .3gp .aac .ac3 .amr .ape .avi .flv .m4a .m4b .m4v .mka .mkv .mov .mp4 .mpeg .mpg .mts .tta .webm"
    " .wma .wmv .wv".split()
)
# How libsndfile's log notes that a header announces more data than the file holds.
CUT_OFF = re.compile(r"^\s*(?:data|SSND|Data Size)\s*:\s*(\d+) \(should be \d+\)", re.MULTILINE)


def decode_file(
    file: str | os.PathLike[str] | BinaryIO, max_duration_s: float | None = None
) -> Iterator[bytes]:
    """Decode a file to canonical PCM, in constant memory.

    Errors are raised while the caller iterates.

    Parameters
    ----------
    max_duration_s : longest recording; it also bounds the decoded bytes before mixing and resampling.

    Raises
    ------
    InvalidAudio : for a file that is missing, damaged, empty or too long.
    """
    max_pcm_bytes = None
    if max_duration_s is not None:  # a second at least: blocks are counted whole
        max_pcm_bytes = int(max(1.0, max_duration_s) * MAX_PCM_BYTES_PER_S)
    if isinstance(file, str | os.PathLike):
        name = f"Audio file '{os.fspath(file)}'"
        try:
            source = open(file, "rb")
        except FileNotFoundError as error:
            raise InvalidAudio(f"{name} does not exist.") from error
        except OSError as error:
            raise InvalidAudio(f"{name} cannot be read: {error.strerror}.") from error
        with source:
            yield from _canonical(source, name, max_duration_s, max_pcm_bytes)
    else:
        yield from _canonical(file, "The audio", max_duration_s, max_pcm_bytes)


def decode_bytes(data: bytes, max_duration_s: float, max_pcm_bytes: int) -> Iterator[bytes]:
    """Decode a file in memory that is not trusted.

    Parameters
    ----------
    data : a container that names its own format, such as WAV, FLAC or MP4.
    max_duration_s : longest recording.
    max_pcm_bytes : most decoded PCM before mixing and resampling, counted as 16-bit samples: a few kilobytes
        can hold hours of 64-channel silence.
    """
    yield from _canonical(BytesIO(data), "The audio", max_duration_s, max_pcm_bytes)


def stated_duration_s(path: Path) -> float | None:
    """Return the length that a file's header states; ``None`` where it states none.

    Nothing is decoded, so it may be wrong: show it, and rely on the decoded length.
    """
    try:
        about = soundfile.info(path)
        return about.duration if 0 < about.frames < OPEN_ENDED_FRAMES else None
    except (soundfile.SoundFileError, TypeError, OSError):
        pass
    if not HAS_FFMPEG:
        return None
    import av

    try:
        with av.open(str(path), "r", options={"format_whitelist": CONTAINERS}) as container:
            return container.duration / av.time_base if container.duration else None
    except (av.FFmpegError, ValueError):
        return None


def _canonical(
    source: BinaryIO, name: str, max_duration_s: float | None, max_pcm_bytes: int | None
) -> Iterator[bytes]:
    stream: CanonicalStream | None = None
    pcm_bytes = num_samples = 0
    for rate, frames in _decode(source, name):
        pcm_bytes += frames.size * BYTES_PER_SAMPLE
        if max_pcm_bytes is not None and pcm_bytes > max_pcm_bytes:
            raise InvalidAudio(f"{name} decodes to more than the limit of {max_pcm_bytes} bytes of PCM.")
        try:
            stream = stream or CanonicalStream(rate, frames.shape[1])
            pcm = stream.push(frames)
        except InvalidAudio as error:
            raise InvalidAudio(f"{name} cannot be used. {error}") from None
        num_samples += len(pcm) // BYTES_PER_SAMPLE
        if max_duration_s is not None and num_samples > max_duration_s * SAMPLE_RATE:
            raise InvalidAudio(f"{name} is longer than the limit of {max_duration_s:g} s.")
        if pcm:
            yield pcm
    if stream is None:
        raise InvalidAudio(f"{name} holds no audio samples.")
    if pcm := stream.finish():
        yield pcm


def _decode(source: BinaryIO, name: str) -> Iterator[Block]:
    """Decode with the library that knows the format."""
    if not source.read(1):
        return
    source.seek(0)
    try:
        sound = soundfile.SoundFile(source)
    except (soundfile.SoundFileError, TypeError):  # TypeError: a name ending in .raw
        sound = None
    # soundfile seeks after every block, of which libsndfile's MP3 decoder complains on standard error.
    if sound is not None and sound.frames > 0 and (sound.format != "MP3" or not HAS_FFMPEG):
        with sound:
            yield from _decode_with_libsndfile(sound, name)
    else:
        # A recorder that was killed leaves a size of 0; FFmpeg reads the samples all the same.
        source.seek(0)
        yield from _decode_with_ffmpeg(source, name, is_known=sound is not None)


def _decode_with_libsndfile(sound: soundfile.SoundFile, name: str) -> Iterator[Block]:
    if (cut := CUT_OFF.search(sound.extra_info)) and int(cut[1]) < OPEN_ENDED_BYTES:
        raise InvalidAudio(
            f"{name} is cut off: only its first {sound.frames / sound.samplerate:.1f} s are there."
        )
    num_frames = 0
    while True:
        try:
            frames = sound.read(BLOCK_SAMPLES // sound.channels, dtype="float32", always_2d=True)
        except soundfile.SoundFileError as error:
            raise InvalidAudio(_damaged(name, num_frames / sound.samplerate)) from error
        if not len(frames):
            return
        num_frames += len(frames)
        yield sound.samplerate, frames


def _decode_with_ffmpeg(source: BinaryIO, name: str, is_known: bool) -> Iterator[Block]:
    if not HAS_FFMPEG:
        if is_known:
            return
        raise InvalidAudio(
            f"{name} cannot be decoded by libsndfile: pip install 'specwhisper[media]' adds FFmpeg's formats."
        )
    import av  # takes 17 MB, and most recordings do without it

    try:
        container = av.open(source, "r", options={"format_whitelist": CONTAINERS})
    except (av.FFmpegError, ValueError) as error:
        if is_known:
            return  # libsndfile opened it and found no samples
        raise InvalidAudio(
            f"{name} cannot be decoded: neither libsndfile nor FFmpeg recognises it as a complete audio file."
        ) from error
    with container:
        if not container.streams.audio:
            raise InvalidAudio(f"{name} has no audio track.")
        packed = av.AudioResampler(format="flt")
        num_frames = rate = 0
        try:
            for decoded in container.decode(container.streams.audio[0]):
                for frame in packed.resample(decoded):
                    rate = frame.sample_rate
                    num_frames += frame.samples
                    samples = frame.to_ndarray().astype(np.float32, copy=False)
                    yield rate, samples.reshape(-1, frame.layout.nb_channels)
        except (av.FFmpegError, ValueError) as error:
            raise InvalidAudio(_damaged(name, num_frames / rate if rate else 0.0)) from error


def _damaged(name: str, good_s: float) -> str:
    return f"{name} is damaged or cut off: it can be decoded for {good_s:.1f} s and no further."
