"""Refuse recordings by the length that their container states.

Nothing is decoded for it.
"""

from __future__ import annotations

import os
from contextlib import suppress

import soundfile

from specwhisper.audio.decode import OPEN_ENDED_FRAMES
from specwhisper.audio.files.ffmpeg import HAS_FFMPEG
from specwhisper.errors import InvalidAudio

EXACT = "mov"  # of FFmpeg's containers: others have a length that FFmpeg estimates, or that of the video


def check_stated_length(path: str | os.PathLike[str], max_duration_s: float) -> None:
    """Raise :class:`InvalidAudio` for a recording that states a longer one.

    A length that is not stated, or too small, is noticed while the recording is decoded.
    """
    stated_s = _stated_s(os.fspath(path))
    if stated_s is not None and stated_s > max_duration_s:
        raise InvalidAudio(
            f"Audio file '{os.fspath(path)}' is longer than the limit of {max_duration_s:g} s: its header "
            f"states {stated_s:.1f} s."
        )


def _stated_s(path: str) -> float | None:
    try:
        about = soundfile.info(path)
        return about.duration if 0 < about.frames < OPEN_ENDED_FRAMES else None
    except (soundfile.SoundFileError, TypeError, OSError):
        if not HAS_FFMPEG:
            return None
    import av

    with (
        suppress(av.FFmpegError, ValueError, IndexError),
        av.open(path, "r", options={"format_whitelist": EXACT}) as container,
    ):
        track = container.streams.audio[0]
        if track.duration is not None and track.time_base is not None:
            return float(track.duration * track.time_base)
    return None
