"""Decode audio files to canonical PCM, by libsndfile or else by FFmpeg; read the lengths they state.

FFmpeg comes with the extra ``media``; without it MP4, AAC, WebM and the like cannot be decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from io import BytesIO
from math import inf
from typing import BinaryIO

import soundfile

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, MIN_SAMPLE_RATE, CanonicalStream
from specwhisper.audio.channels import Mixer, Weights
from specwhisper.audio.damage import Damage, Warn, ignore
from specwhisper.audio.ffmpeg import (
    HAS_FFMPEG,
    Block,
    check_track,
    containers,
    decode_with_ffmpeg,
    layout_of,
    weights_of,
)
from specwhisper.audio.links import links
from specwhisper.errors import InvalidAudio
from specwhisper.selection import ALL_AUDIO, Selection
from specwhisper.types import SAMPLE_RATE

BLOCK_SAMPLES = 65_536  # over all channels
# Before mixing and resampling, 8 channels of 48 kHz: a file of kilobytes can hold far more silence than that.
MAX_PCM_BYTES_PER_S = 8 * 48_000 * BYTES_PER_SAMPLE
# Recorders that cannot seek back leave the size of their data open, near one of these powers of 2.
OPEN_ENDED_BITS = (31, 32, 63, 64)
MAX_HEADER_BYTES = 65_536
OPEN_ENDED_FRAMES = 2**48  # libsndfile's number where the length is not known is larger
NO_PIPE = "a recording is read more than once, so write it to a file first."
# Suffixes by which recordings are found in folders: those of libsndfile, then those of FFmpeg.
AUDIO_SUFFIXES = frozenset(
    ".aif .aifc .aiff .au .caf .flac .mp3 .oga .ogg .opus .rf64 .snd .sph .w64 .wav .wave"
    " .3gp .aac .ac3 .amr .ape .avi .flv .m4a .m4b .m4v .mka .mkv .mov .mp4 .mpeg .mpg .mts .tta .webm"
    " .wma .wmv .wv".split()
)
EXACT = "mov"  # the container whose length is exact: FFmpeg estimates others, or takes that of the video
MAX_S_PER_BYTE = 65_535 / 10 / SAMPLE_RATE  # silence in FLAC's largest frames
# FLAC, Ogg and MP3: libsndfile ends at the first damage in them, and writes about it on standard error.
COMPRESSED = re.compile(rb"fLaC|OggS|ID3|\xff[\xe0-\xff]")
# In libsndfile's log: the length of the file, and the data that its header announces and that it holds.
LENGTH = re.compile(r"^Length : (\d+)$", re.MULTILINE)
DATA = re.compile(r"^\s*(?:data|SSND|Data [Ss]ize)\s*: (\d+)(?: \(should be (\d+)\))?$", re.MULTILINE)


def decode_file(
    file: str | os.PathLike[str] | BinaryIO,
    max_duration_s: float | None = None,
    warn: Warn = ignore,
    selection: Selection = ALL_AUDIO,
) -> Iterator[bytes]:
    """Decode a file to canonical PCM, in constant memory.

    Of a damaged file all that can be decoded is; of joined ones, every part. Errors are raised while the
    caller iterates.

    Parameters
    ----------
    max_duration_s : longest recording; it also bounds the decoded bytes before mixing and resampling.
    warn : called with each warning about what is missing, at the end of the file.
    selection : what of it is decoded.

    Raises
    ------
    InvalidAudio : for a file that is missing, no recording, empty or too long, or without what is selected.
    """
    if isinstance(file, str | os.PathLike):
        name = f"Audio file '{os.fspath(file)}'"
        try:
            source = open(file, "rb")
        except FileNotFoundError as error:
            raise no_such_file(file) from error
        except OSError as error:
            raise InvalidAudio(f"{name} cannot be read: {error.strerror}.") from error
        with source:
            if not source.seekable():
                raise InvalidAudio(f"{name} is a pipe: {NO_PIPE}")
            yield from _decode_source(source, name, max_duration_s, warn, selection)
    else:
        yield from _decode_source(file, "The audio", max_duration_s, warn, selection)


def no_such_file(path: str | os.PathLike[str]) -> InvalidAudio:
    if os.fspath(path) == "-":
        return InvalidAudio(f"'-' isn't a file, and standard input is not read: {NO_PIPE}")
    return InvalidAudio(f"Audio file '{os.fspath(path)}' does not exist.")


def is_open_ended(size: int) -> bool:
    """Return whether the size of a file's data means that it is not known."""
    return any(abs(size - 2**bits) <= MAX_HEADER_BYTES for bits in OPEN_ENDED_BITS)


def _decode_source(
    source: BinaryIO, name: str, max_duration_s: float | None, warn: Warn, selection: Selection
) -> Iterator[bytes]:
    damage = Damage(name, warn)
    return canonical(_decode(source, name, damage, selection), damage, selection, max_duration_s)


def canonical(
    blocks: Iterable[Block], damage: Damage, selection: Selection, max_duration_s: float | None = None
) -> Iterator[bytes]:
    """Convert blocks to canonical PCM; note what is missing in them, and report it at the end."""
    name, max_pcm_bytes = damage.name, inf
    if max_duration_s is not None:  # a second at least: blocks are counted whole
        max_pcm_bytes = int(max(1.0, max_duration_s) * MAX_PCM_BYTES_PER_S)
    mixer, stream, stream_rate = Mixer(selection.channel), None, 0
    pcm_bytes = num_samples = 0
    for rate, frames, weights in blocks:
        pcm_bytes += frames.size * BYTES_PER_SAMPLE
        if pcm_bytes > max_pcm_bytes:
            raise InvalidAudio(f"{name} decodes to more than the limit of {max_pcm_bytes} bytes of PCM.")
        pcm = b""
        try:
            if stream is None or stream_rate != rate:
                pcm = b"" if stream is None else stream.finish()
                stream, stream_rate = CanonicalStream(rate), rate
            pcm += stream.push(mixer(damage.finite(frames, rate), rate, weights))
        except InvalidAudio as error:
            raise InvalidAudio(f"{name} cannot be used. {error}") from None
        damage.decoded_s += len(frames) / rate
        num_samples += len(pcm) // BYTES_PER_SAMPLE
        if max_duration_s is not None and num_samples > max_duration_s * SAMPLE_RATE:
            raise InvalidAudio(f"{name} is longer than the limit of {max_duration_s:g} s.")
        if pcm:
            yield pcm
    if stream is None:
        raise InvalidAudio(f"{name} holds no audio samples.")
    if pcm := stream.finish():
        yield pcm
    damage.report()
    mixer.report(name, damage.warn)


def _decode(source: BinaryIO, name: str, damage: Damage, selection: Selection) -> Iterator[Block]:
    """Decode every link; a link that cannot be decoded is missing."""
    if not source.read(1):
        return
    source.seek(0)
    first_error = None
    for link in links(source, name):
        try:
            yield from _decode_link(link, name, damage, selection)
        except InvalidAudio as error:
            first_error = first_error or error
            damage.stop("a part that was joined to it")
    if first_error is not None and not damage.decoded_s:
        raise first_error


def _decode_link(source: BinaryIO, name: str, damage: Damage, selection: Selection) -> Iterator[Block]:
    sound = None
    is_compressed = COMPRESSED.match(source.read(4)) is not None
    source.seek(0)
    if not (is_compressed and HAS_FFMPEG):
        try:
            sound = soundfile.SoundFile(source)
        except (soundfile.SoundFileError, TypeError):  # TypeError: a name ending in .raw
            pass
    # Where a recorder that was killed left a size of 0, FFmpeg reads the samples all the same.
    if sound is not None and sound.frames > 0:
        check_track(selection, 1, name)
        weights = None
        if sound.channels > 2:
            at = source.seek(0, os.SEEK_CUR)
            weights = weights_of(layout_of(source))
            source.seek(at)
        with sound:
            yield from _decode_with_libsndfile(sound, weights, damage)
    else:
        source.seek(0)
        yield from decode_with_ffmpeg(
            source, name, is_known=sound is not None, damage=damage, selection=selection
        )


def _decode_with_libsndfile(
    sound: soundfile.SoundFile, weights: Weights | None, damage: Damage
) -> Iterator[Block]:
    stated_frames = float(sound.frames) if sound.frames < OPEN_ENDED_FRAMES else 0.0
    data, length = DATA.search(sound.extra_info), LENGTH.search(sound.extra_info)
    if data and length and not is_open_ended(int(data[1])):
        stated_frames *= max(1.0, int(data[1]) / max(1, int(data[2] or length[1])))
    num_frames = 0
    while True:
        try:
            frames = sound.read(BLOCK_SAMPLES // sound.channels, dtype="float32", always_2d=True)
        except soundfile.SoundFileError:
            damage.stop()
            return
        if not len(frames):
            break
        num_frames += len(frames)
        yield sound.samplerate, frames, weights
    if num_frames < stated_frames:
        damage.fall_short(num_frames / sound.samplerate, stated_frames / sound.samplerate)


class G711(StrEnum):
    """A law; the values are libsndfile's names."""

    MULAW = "ULAW"
    ALAW = "ALAW"


def decode_g711(data: bytes, law: G711) -> bytes:
    """Decode to s16le, twice as many bytes; each byte is decoded by itself."""
    if not data:
        return data
    samples, _ = soundfile.read(
        BytesIO(data), dtype="int16", format="RAW", subtype=law, samplerate=MIN_SAMPLE_RATE, channels=1
    )
    decoded: bytes = samples.astype("<i2", copy=False).tobytes()
    return decoded


def check_stated_length(path: str | os.PathLike[str], max_duration_s: float) -> None:
    """Raise :class:`InvalidAudio` for a recording that states, and may hold, more.

    A length that is not stated, or wrong, is noticed while the recording is decoded.
    """
    stated_s = stated_duration_s(path, is_exact=True)
    if stated_s is not None and max_duration_s < stated_s <= os.path.getsize(path) * MAX_S_PER_BYTE:
        raise InvalidAudio(
            f"Audio file '{os.fspath(path)}' is longer than the limit of {max_duration_s:g} s: its header "
            f"states {stated_s:.1f} s."
        )


def stated_duration_s(path: str | os.PathLike[str], *, is_exact: bool = False) -> float | None:
    """Return the length that a file's header states; ``None`` where it states none.

    It may be wrong: show it, and rely on the decoded length.

    ``is_exact``: leave out lengths that FFmpeg estimates.
    """
    if not os.path.isfile(path):  # what is read of a pipe is gone
        return None
    try:
        about = soundfile.info(os.fspath(path))
        return about.duration if 0 < about.frames < OPEN_ENDED_FRAMES else None
    except (soundfile.SoundFileError, TypeError, OSError):
        if not HAS_FFMPEG:
            return None
    import av

    options = {"format_whitelist": EXACT} if is_exact else containers()
    with (
        suppress(av.FFmpegError, ValueError, OSError, IndexError),
        open(path, "rb") as source,
        av.open(source, "r", options=options) as container,
    ):
        track = container.streams.audio[0]
        if track.duration is not None and track.time_base is not None:
            return float(track.duration * track.time_base)
        if container.duration and not is_exact:
            return container.duration / av.time_base
    return None
