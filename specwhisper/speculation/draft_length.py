"""How far a draft runs ahead of the target, as requested."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from specwhisper.errors import InvalidRequest
from specwhisper.types import DEFAULT_MAX_WIDTH, Mode

FIRST_GAMMA = 5  # of an adaptive session
MAX_GAMMA = 64
MAX_ADAPTIVE_GAMMA = DEFAULT_MAX_WIDTH  # a longer block takes a second forward pass
DEPTH = 4


@dataclass(frozen=True, slots=True)
class DraftLength:
    """Blocks of ``gamma`` tokens, at most ``depth`` blocks after the committed end.

    In lock-step one block is in flight, whatever the depth.

    Attributes
    ----------
    depth : ``None`` lets :mod:`specwhisper.speculation.controller` choose.
    is_adaptive : whether the controller chooses gamma, which is only the first value then.
    min_confidence : the draft stops, until the next commit, where it is less sure that all it drafted after
        the committed end is right. 0 never stops it; ``None`` lets the controller of an adaptive session
        choose.

    Raises
    ------
    InvalidRequest
        if a value is out of range.
    """

    mode: Mode
    gamma: int = FIRST_GAMMA
    depth: int | None = None
    is_adaptive: bool = False
    min_confidence: float | None = None

    def __post_init__(self) -> None:
        for name in ("gamma", "depth"):
            value = getattr(self, name)
            if not isinstance(value, Integral) and (name, value) != ("depth", None):
                raise InvalidRequest(f"{name} is {value!r}: it must be a whole number.")
        if not 0 <= (self.min_confidence or 0) < 1:
            raise InvalidRequest(
                f"min_confidence is {self.min_confidence}: it must be a probability below 1."
            )
        if not 1 <= self.gamma <= MAX_GAMMA:
            raise InvalidRequest(f"gamma is {self.gamma}: it must be between 1 and {MAX_GAMMA} tokens.")
        if self.depth is not None and self.depth < 1:
            raise InvalidRequest(f"depth is {self.depth}: it must be at least 1 block.")

    @classmethod
    def of(
        cls, mode: Mode, gamma: int | None, depth: int | None = None, min_confidence: float | None = None
    ) -> DraftLength:
        """Return the requested length; without a gamma it is adaptive."""
        return cls(mode, FIRST_GAMMA if gamma is None else gamma, depth, gamma is None, min_confidence)

    @property
    def longest(self) -> int:
        """Most tokens of any block."""
        return max(self.gamma, MAX_ADAPTIVE_GAMMA) if self.is_adaptive else self.gamma

    @property
    def first_depth(self) -> int:
        """Blocks in flight before anything is measured."""
        return 1 if self.mode.is_lock_step else self.depth or DEPTH
