"""Decode audio tracks by FFmpeg, and note what is missing in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.channels import Weights
from specwhisper.audio.damage import Damage
from specwhisper.errors import InvalidAudio
from specwhisper.selection import Selection

MIN_LOSS_S = 0.01
MIN_PAUSE_S = 0.1  # times in whole milliseconds, and encoders' delays, are below it
MAX_CLOCK_JUMP_S = 10.0  # more is another clock, where a container may change it; FFmpeg has the same limit
MAX_BACK_S = 1.0


class Timeline:
    """The times of a track's frames.

    Parameters
    ----------
    start_s : where the container begins.
    is_gapless : whether its times continue without a gap, so that a jump is audio that is missing. Elsewhere
        it is a pause of the recorder, or packets that were never sent.
    may_jump : whether it may change its clock.

    Attributes
    ----------
    begin_s, end_s : where the frames so far begin and end; ``None`` where the container has no times.
    lost_s : what is missing in all.
    has_jumped : whether the clock has changed, so that the container's length means nothing.
    """

    def __init__(self, start_s: float | None, damage: Damage, *, is_gapless: bool, may_jump: bool) -> None:
        self.begin_s: float | None = None
        self.end_s: float | None = None
        self.lost_s = 0.0
        self.has_jumped = False
        self._start_s = start_s
        self._damage = damage
        self._is_gapless = is_gapless
        self._may_jump = may_jump
        self._pending_s = self._short_s = 0.0  # silence to write, and what is too little for any so far

    def lose(self, lost_s: float) -> None:
        self._damage.lose(lost_s)
        self.lost_s += lost_s
        self._pending_s += lost_s
        if self.end_s is not None:
            self.end_s += lost_s

    def silence_before(self, begin_s: float | None, frame_s: float) -> float:
        begin_s = self.end_s if begin_s is None else begin_s
        if begin_s is not None:
            self._add(begin_s, frame_s)
            self.end_s = begin_s + frame_s
        pending_s, self._pending_s = self._pending_s, 0.0
        return pending_s

    def _add(self, begin_s: float, frame_s: float) -> None:
        is_first = self.end_s is None
        if self.end_s is None:
            self.begin_s = begin_s
            self.end_s = begin_s if self._start_s is None else max(0.0, self._start_s)
        jump_s = begin_s - self.end_s
        if jump_s < -MAX_BACK_S or (self._may_jump and jump_s > MAX_CLOCK_JUMP_S):
            self._short_s, self.has_jumped = 0.0, True
            if jump_s > 0 and not is_first:
                self._damage.jump(jump_s)
        elif self._is_gapless and not is_first:
            if jump_s > MIN_LOSS_S:
                self.lose(jump_s)
        else:
            self._short_s += jump_s
            # Clocks that drift jump by less than a frame.
            if self._short_s > MIN_PAUSE_S and jump_s > frame_s / 2:
                self._pending_s += self._short_s
                self._short_s = 0.0


HAS_FFMPEG = find_spec("av") is not None
# Samples per second, samples [frames, channels], and the channels' weights.
Block = tuple[int, NDArray[np.float32], Weights | None]

# Demuxers that open further files or addresses, or run or synthesise what they read. Besides them those that
# read no file at all are refused: devices and the network.
REFUSED_CONTAINERS = frozenset(
    "applehttp avisynth concat dash hls imf mlv sbg sdp vapoursynth vobsub webm_dash_manifest".split()
)
# Formats without a header for the whole: FFmpeg guesses their lengths from the first frames.
ELEMENTARY = frozenset("aac ac3 dts eac3 loas mlp mp3 truehd".split())
UNKNOWN_LAYOUT = re.compile(r"\d+ channels.*|ambisonic.*")
TAGS = (b"ID3", b"TAG", b"APETAGEX", b"LYRICSBEGIN")  # text beside the audio, also between joined parts
GAPLESS = frozenset(("flac", "mpeg", "mpegts", "ogg"))
# Encoders' delays, by which the lengths that containers state are off. Those of lossless codecs are exact.
DELAY_S, LOSSLESS_DELAY_S = 0.25, 0.001
LOSSLESS = frozenset(("ape", "flac", "tta", "wavpack"))
# Each failure may cost as little as a frame, or as much as 64 KiB of junk.
MAX_FAILURES = 100
XING = re.compile(rb"(?:Xing|Info)\0\0\0[\1-\x0f](.{4})", re.DOTALL)  # an MP3's number of frames
# An AVI's units of time, and how many an audio track has: if a file is cut off, FFmpeg forgets them.
AVI_TRACK = re.compile(rb"strh....auds.{16}(.{4})(.{4}).{4}(.{4})", re.DOTALL)
HEADERS_WITHIN_BYTES = 1 << 20


def decode_with_ffmpeg(
    source: BinaryIO, name: str, is_known: bool, damage: Damage, selection: Selection
) -> Iterator[Block]:
    """Decode an audio track; ``is_known``: libsndfile opened the file, and found no samples."""
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
        track = _track(container.streams.audio, name, selection)
        if track.codec_context is None:
            raise InvalidAudio(f"{name} has an audio track of a codec that FFmpeg does not decode.")
        yield from _decode_track(source, container, track, damage, selection)


def check_track(selection: Selection, num_tracks: int, name: str) -> None:
    if (selection.audio_track or 1) > num_tracks:
        tracks = "one audio track" if num_tracks == 1 else f"{num_tracks} audio tracks"
        raise InvalidAudio(f"{name} has no audio track {selection.audio_track}: it has {tracks}.")


def _track(tracks: Sequence[Any], name: str, selection: Selection) -> Any:
    """Return the wanted track, by default the first that is marked as default."""
    import av

    check_track(selection, len(tracks), name)
    if selection.audio_track is not None:
        return tracks[selection.audio_track - 1]
    return next((each for each in tracks if each.disposition & av.stream.Disposition.default), tracks[0])


def layout_of(source: BinaryIO) -> str:
    if not HAS_FFMPEG:
        return ""
    import av

    source.seek(0)
    try:
        with av.open(source, "r", options=containers()) as container:
            return _layout(container.streams.audio[0].codec_context)
    except (av.FFmpegError, ValueError, IndexError, AttributeError):  # AttributeError: an unknown codec
        return ""


def _layout(context: Any) -> str:
    """Return the name of a track's layout.

    One in an order of its own is dropped: PyAV would free its memory twice.
    """
    layout = context.layout
    name = str(layout.name)
    if layout.nb_channels and UNKNOWN_LAYOUT.fullmatch(name):
        context.layout = f"{layout.nb_channels} channels"
    return name


@lru_cache(100)
def weights_of(layout: str) -> Weights | None:
    """Return FFmpeg's weights of a layout's channels in their mix.

    Together they are 1. ``None`` stands for an average, of one or two channels or where no place is known.
    """
    if not layout or UNKNOWN_LAYOUT.fullmatch(layout):
        return None
    import av

    num_channels = av.AudioLayout(layout).nb_channels
    if num_channels < 3:
        return None
    impulses = np.eye(num_channels, dtype=np.float32).reshape(1, -1)  # one in each channel
    frame = av.AudioFrame.from_ndarray(impulses, format="flt", layout=layout)
    frame.sample_rate = 48_000
    (mixed,) = av.AudioResampler(format="flt", layout="mono").resample(frame)
    weights: Weights = mixed.to_ndarray()[0] / mixed.to_ndarray().sum()
    return weights


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


def _decode_track(
    source: BinaryIO, container: Any, track: Any, damage: Damage, selection: Selection
) -> Iterator[Block]:
    import av

    stated_s, base_s = _stated_s(source, container, track)
    is_elementary, is_gapless = container.format.name in ELEMENTARY, container.format.name in GAPLESS
    start_s = None if container.start_time is None else container.start_time / 1e6
    has_one_clock = container.format.name == "ogg"  # in each link
    may_jump = not has_one_clock and bool(container.format.flags & av.format.Flags.ts_discont.value)
    timeline = Timeline(start_s, damage, is_gapless=is_gapless, may_jump=may_jump)
    codec = track.codec_context.name
    _layout(track.codec_context)
    if codec in LOSSLESS:  # otherwise damage is decoded to noise
        track.codec_context.options = {"err_detect": "crccheck+explode"}
    packed, form = av.AudioResampler(format="flt"), None
    weights = None
    decoded_s = junk_s = 0.0
    num_bytes, first_byte = 0, b""  # in packets that could be decoded
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
                junk_s += packet_s  # after the last frame it isn't damage
                continue
            timeline.lose(packet_s)
            continue
        for frame in frames:
            if junk_s:
                timeline.lose(junk_s)
                junk_s = 0.0
            rate, num_channels = frame.sample_rate, frame.layout.nb_channels
            frame_s = frame.samples / rate
            begin_s = None if frame.pts is None else float(frame.pts * frame.time_base)
            silence_s = timeline.silence_before(begin_s, frame_s)
            decoded_s += frame_s
            if form != (form := (frame.format.name, frame.layout.name, rate)):
                packed = av.AudioResampler(format="flt")
                weights = weights_of(frame.layout.name)
            num_silent = round(damage.allowed(silence_s) * rate) if selection.container_times else 0
            while num_silent > 0:  # in blocks of at most a second
                yield rate, np.zeros((min(rate, num_silent), num_channels), np.float32), weights
                num_silent -= rate
            for piece in packed.resample(frame):
                samples = piece.to_ndarray().astype(np.float32, copy=False)
                yield rate, samples.reshape(-1, num_channels), weights
        if frames and packet.size:
            num_bytes += packet.size
            first_byte = first_byte or bytes(packet)[:1]
    reached_s = decoded_s + timeline.lost_s
    base_s = timeline.begin_s if base_s is None else base_s
    if timeline.end_s is not None and base_s is not None and not is_gapless:
        reached_s = max(reached_s, timeline.end_s - base_s)
    delay_s = LOSSLESS_DELAY_S if codec in LOSSLESS else DELAY_S
    if stated_s - reached_s > delay_s and not timeline.has_jumped:
        damage.fall_short(decoded_s, stated_s)


def _packets(container: Any, track: Any, damage: Damage) -> Iterator[Any]:
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
        xing = XING.search(_beginning(source))
        frame_samples = 1152 if track.rate >= 32_000 else 576
        return (int.from_bytes(xing[1]) * frame_samples / track.rate if xing else 0.0), None
    if container.format.name in ELEMENTARY:
        return 0.0, None
    if container.format.name == "avi":
        headers = AVI_TRACK.findall(_beginning(source))
        at = list(container.streams.audio).index(track)
        if at < len(headers):
            scale, rate, length = (int.from_bytes(each, "little") for each in headers[at])
            return length * scale / max(1, rate), 0.0
    if track.duration is not None:
        return float(track.duration * track.time_base), None
    if len(container.streams) == 1 and container.duration:
        return container.duration / 1e6, (container.start_time or 0) / 1e6
    return 0.0, None


def _beginning(source: BinaryIO) -> bytes:
    """Return the part of a file that has its headers; the position stays."""
    here = source.seek(0, os.SEEK_CUR)
    source.seek(0)
    beginning = source.read(HEADERS_WITHIN_BYTES)
    source.seek(here)
    return beginning
