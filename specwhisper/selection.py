"""The options that select what of a recording is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import Any

from specwhisper.validated import Rule, flag, option, to_text, validate, whole

MIX = "mix"
SIDES: Mapping[str, int] = MappingProxyType({"left": 1, "right": 2})
MAX_CHANNEL, MAX_AUDIO_TRACK = 64, 1_000
CHANNELS = frozenset((MIX, *SIDES, *map(str, range(1, MAX_CHANNEL + 1))))


def _to_channel(value: Any) -> str | None:
    return str(value) if isinstance(value, Integral) and not isinstance(value, bool) else to_text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects what of a recording is decoded.

    Attributes
    ----------
    channel : "mix" for all channels, or the one that is taken: "left", "right", or its number from 1 on.
    audio_track : its number from 1 on; ``None`` for the one that the file marks as default.
    container_times : whether a late start and gaps, by the container's times, are silence; otherwise what was
        recorded is joined.
    """

    channel: str = option(
        MIX,
        _to_channel,
        Rule(CHANNELS.__contains__, f"it must be mix, left, right or a number from 1 to {MAX_CHANNEL}"),
    )
    audio_track: int | None = whole(None, 1, MAX_AUDIO_TRACK, "it must be a number from 1 on, or left out")
    container_times: bool = flag(True)

    def __post_init__(self) -> None:
        validate(self)


ALL_AUDIO = Selection()
