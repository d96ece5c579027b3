"""Read the length that a recording's container states, without decoding."""

from __future__ import annotations

import os
from contextlib import suppress

import soundfile

from specwhisper.audio.decode import OPEN_ENDED_FRAMES
from specwhisper.audio.ffmpeg import HAS_FFMPEG, containers
from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE

EXACT = "mov"  # the container whose length is exact: FFmpeg estimates others, or takes that of the video
MAX_S_PER_BYTE = 65_535 / 10 / SAMPLE_RATE  # silence in FLAC's largest frames


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
