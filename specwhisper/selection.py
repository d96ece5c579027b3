"""The options that select what of a recording is decoded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from types import MappingProxyType
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.validated import (
    ABOVE_0,
    Rule,
    called,
    described,
    number,
    option,
    switch,
    to_text,
    validate,
    whole,
)

MIX = "mix"
MAX_MS = 86_400_000  # a day
VAD_FRAME_MS = 32
SIDES: Mapping[str, int] = MappingProxyType({"left": 1, "right": 2})
MAX_CHANNEL, MAX_AUDIO_TRACK = 64, 1_000
CHANNELS = frozenset((MIX, *SIDES, *map(str, range(1, MAX_CHANNEL + 1))))


def _to_channel(value: Any) -> str | None:
    return str(value) if isinstance(value, Integral) and not isinstance(value, bool) else to_text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects what of a recording is decoded."""

    channel: str = option(
        MIX,
        "Channel of the audio: mix for all of them, or left, right or its number, counted from 1.",
        "mix|left|right|N",
        read=_to_channel,
        rules=(
            Rule(CHANNELS.__contains__, f"it must be mix, left, right or a number from 1 to {MAX_CHANNEL}"),
        ),
    )
    audio_track: int | None = whole(
        None,
        1,
        MAX_AUDIO_TRACK,
        "Audio track of a file, counted from 1 (FFmpeg's 0:a:0). Default: the file's own.",
        must="it must be a number of at least 1, or left out",
    )
    container_times: bool = switch(
        True,
        "Keep the container's times: a late start of the audio and gaps in it become silence. Otherwise "
        "the recorded parts are joined.",
    )

    def __post_init__(self) -> None:
        validate(self)


ALL_AUDIO = Selection()


@described
@dataclass(frozen=True, slots=True)
class VadOptions:
    """Which parts of a recording are speech, as faster-whisper's ``VadOptions``."""

    threshold: float = number(0.5, 0, 1, "Audio with at least this probability is speech.", "P")
    neg_threshold: float | None = number(  # at least 0.01
        None,
        0,
        1,
        "Probability below which speech ends. Default: 0.15 below the threshold.",
        "P",
        must="it must be a probability, or left out",
    )
    min_speech_duration_ms: int = whole(0, 0, MAX_MS, "Shortest speech that is kept, in milliseconds.", "MS")
    max_speech_duration_s: float = number(  # cut at its last silence of 98 ms, or without one at its end
        math.inf,
        ABOVE_0,
        math.inf,
        "Longest speech in one piece: longer speech is cut at a silence.",
        "SECONDS",
        must="it must be above 0, or inf",
    )
    min_silence_duration_ms: int = whole(
        2000, 0, MAX_MS, "Shortest silence that separates speech, in milliseconds.", "MS"
    )
    speech_pad_ms: int = whole(
        400, 0, MAX_MS, "Silence kept at either side of speech, in milliseconds.", "MS"
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.neg_threshold is not None and self.neg_threshold > self.threshold:
            raise InvalidRequest(
                f"{called('neg_threshold')} is {self.neg_threshold:g}: it must be at most "
                f"{called('threshold')}, which is {self.threshold:g}."
            )
        shortest_s = (2 * self.speech_pad_ms + VAD_FRAME_MS) / 1000
        if self.max_speech_duration_s <= shortest_s:
            raise InvalidRequest(
                f"{called('max_speech_duration_s')} is {self.max_speech_duration_s:g}: it must be above "
                f"{shortest_s:g}, twice {called('speech_pad_ms')} and {VAD_FRAME_MS} ms."
            )


def to_vad_options(value: Any) -> VadOptions:
    """Read options of VAD, or a mapping of them."""
    if isinstance(value, VadOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("it must be VadOptions, or a dict of them")
    names = [declared.name for declared in fields(VadOptions)]
    if unknown := value.keys() - set(names):
        raise ValueError(f"unknown option '{min(map(str, unknown))}': choose from {', '.join(names)}")
    try:
        return VadOptions(**value)
    except InvalidRequest as error:
        raise ValueError(str(error).removesuffix(".")) from None
