"""Decode audio tracks by FFmpeg, and note what is missing in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.files.damage import Damage
from specwhisper.errors import InvalidAudio

HAS_FFMPEG = find_spec("av") is not None
Block = tuple[int, NDArray[np.float32]]  # samples per second, samples [frames, channels]

# Demuxers that open further files or addresses, or run or synthesise what they read. Besides them those that
# read no file at all are refused: devices and the network.
REFUSED_CONTAINERS = frozenset(
    "applehttp avisynth concat dash hls imf mlv sbg sdp vapoursynth vobsub webm_dash_manifest".split()
)
# Formats without a header for the whole: FFmpeg guesses their lengths from the first frames.
ELEMENTARY = frozenset("aac ac3 dts eac3 loas mlp mp3 truehd".split())
TAGS = (b"ID3", b"TAG", b"APETAGEX", b"LYRICSBEGIN")  # text beside the audio, also between joined parts
# Times continue without a gap in these: a jump is audio that is missing. Others pause with the recorder.
GAPLESS = frozenset(("flac", "mpeg", "mpegts", "ogg"))
MIN_JUMP_S = 0.01
# Encoders' delays, by which the lengths that containers state are off. Those of lossless codecs are exact.
DELAY_S, LOSSLESS_DELAY_S = 0.25, 0.001
LOSSLESS = frozenset(("ape", "flac", "tta", "wavpack"))
# Each failure may cost as little as a frame, or as much as 64 KiB of junk.
MAX_FAILURES = 100
XING = re.compile(rb"(?:Xing|Info)\0\0\0[\1-\x0f](.{4})", re.DOTALL)  # an MP3's number of frames
XING_WITHIN_BYTES = 1 << 20


def decode_with_ffmpeg(source: BinaryIO, name: str, is_known: bool, damage: Damage) -> Iterator[Block]:
    """Decode the audio track of a file.

    Parameters
    ----------
    is_known : whether libsndfile opened it, and found no samples.

    Raises
    ------
    InvalidAudio : for a file of no known format, or without audio.
    """
    if not HAS_FFMPEG:
        if is_known:
            return
        raise InvalidAudio(
            f"{name} cannot be decoded by libsndfile: pip install 'specwhisper[media]' adds FFmpeg's formats."
        )
    import av  # takes 17 MB, and most recordings do without it

    try:
        container = av.open(source, "r", options=containers())
    except (av.FFmpegError, ValueError) as error:
        if is_known:
            return
        raise InvalidAudio(
            f"{name} cannot be decoded: neither libsndfile nor FFmpeg recognises it as a complete audio file."
        ) from error
    with container:
        if not container.streams.audio:
            raise InvalidAudio(f"{name} has no audio track.")
        track = container.streams.audio[0]
        if track.codec_context is None:
            raise InvalidAudio(f"{name} has an audio track of a codec that FFmpeg does not decode.")
        yield from _decode_track(source, container, track, damage)


@cache
def containers() -> dict[str, str]:
    """Return the options that allow all formats but the refused, and no other file."""
    import av

    allowed = set()
    for each in av.formats_available:
        if REFUSED_CONTAINERS.isdisjoint(each.split(",")):
            try:
                if not av.ContainerFormat(each, "r").no_file:
                    allowed.update(each.split(","))
            except ValueError:  # it is only written
                pass
    return {"format_whitelist": ",".join(sorted(allowed)), "protocol_whitelist": "none"}


def _decode_track(source: BinaryIO, container: Any, track: Any, damage: Damage) -> Iterator[Block]:
    """Decode a track, and note what is missing."""
    import av

    stated_s, base_s = _stated_s(source, container, track)
    is_elementary, is_gapless = container.format.name in ELEMENTARY, container.format.name in GAPLESS
    codec = track.codec_context.name
    if codec in LOSSLESS:  # otherwise damage is decoded to noise
        track.codec_context.options = {"err_detect": "crccheck+explode"}
    packed, form = av.AudioResampler(format="flt"), None
    decoded_s = lost_s = junk_s = 0.0
    end_s: float | None = None  # by the container's times
    num_bytes, first_byte = 0, b""  # of packets that could be decoded
    for packet in _packets(container, track, damage):
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError):
            head = bytes(packet)[:16]
            packet_s = float((packet.duration or 0) * packet.time_base)
            if is_elementary and num_bytes:
                packet_s = max(packet_s, packet.size * decoded_s / num_bytes)
            if head.startswith(TAGS):
                continue
            if is_elementary and head[:1] != first_byte:
                junk_s += packet_s  # after the last frame it is no damage
                continue
            damage.lose(packet_s)
            lost_s += packet_s
            end_s = None if end_s is None else end_s + packet_s
            continue
        for frame in frames:
            if junk_s:
                damage.lose(junk_s)
                lost_s, junk_s = lost_s + junk_s, 0.0
            frame_s = frame.samples / frame.sample_rate
            begin_s = None if frame.pts is None else float(frame.pts * frame.time_base)
            if begin_s is not None:
                base_s = begin_s if base_s is None else base_s
                if is_gapless and end_s is not None and begin_s - end_s > MIN_JUMP_S:
                    damage.lose(begin_s - end_s)
                    lost_s += begin_s - end_s
                end_s = begin_s + frame_s
            elif end_s is not None:
                end_s += frame_s
            decoded_s += frame_s
            if form != (form := (frame.format.name, frame.layout.name, frame.sample_rate)):
                packed = av.AudioResampler(format="flt")
            for piece in packed.resample(frame):
                samples = piece.to_ndarray().astype(np.float32, copy=False)
                yield frame.sample_rate, samples.reshape(-1, frame.layout.nb_channels)
        if frames and packet.size:
            num_bytes += packet.size
            first_byte = first_byte or bytes(packet)[:1]
    reached_s = decoded_s + lost_s
    if end_s is not None and base_s is not None and not is_gapless:
        reached_s = max(reached_s, end_s - base_s)
    delay_s = LOSSLESS_DELAY_S if codec in LOSSLESS else DELAY_S
    if stated_s - reached_s > delay_s:
        damage.fall_short(decoded_s, stated_s)


def _packets(container: Any, track: Any, damage: Damage) -> Iterator[Any]:
    """Yield a track's packets; leave out what cannot be read."""
    import av

    num_failures = 0
    while num_failures < MAX_FAILURES:
        try:
            for packet in container.demux(track):
                num_failures = 0
                yield packet
            return
        except (av.FFmpegError, IndexError):  # IndexError: another track begins
            num_failures += 1
    damage.stop()


def _stated_s(source: BinaryIO, container: Any, track: Any) -> tuple[float, float | None]:
    """Return the length that a container states, 0 if none, and the time from which it counts.

    That time is ``None`` for the first frame's.
    """
    if container.format.name == "mp3":
        here = source.seek(0, os.SEEK_CUR)
        source.seek(0)
        xing = XING.search(source.read(XING_WITHIN_BYTES))
        source.seek(here)
        frame_samples = 1152 if track.rate >= 32_000 else 576
        return (int.from_bytes(xing[1]) * frame_samples / track.rate if xing else 0.0), None
    if container.format.name in ELEMENTARY:
        return 0.0, None
    if track.duration is not None:
        return float(track.duration * track.time_base), None
    if len(container.streams) == 1 and container.duration:
        return container.duration / 1e6, (container.start_time or 0) / 1e6
    return 0.0, None
