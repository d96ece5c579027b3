"""How far a draft may run ahead of the target, as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from specwhisper.errors import InvalidRequest
from specwhisper.types import DEFAULT_MAX_WIDTH, Mode

FIRST_GAMMA = 5  # of a session that chooses for itself
MAX_GAMMA = 64
MAX_ADAPTIVE_GAMMA = DEFAULT_MAX_WIDTH  # a longer block takes a second pass
DEPTH = 4


@dataclass(frozen=True, slots=True)
class DraftLength:
    """Blocks of ``gamma`` tokens, at most ``depth`` blocks beyond the committed end.

    A mode that waits for answers has one block in flight whatever the depth.

    Attributes
    ----------
    depth : ``None`` leaves it to :mod:`specwhisper.speculation.controller`.
    is_adaptive : whether gamma is only what a session begins with, and the controller goes on from there.
    min_confidence : the draft stops, until it hears more, where it believes less than this that all is right
        that it has drafted behind the committed end; 0 never stops it, ``None`` leaves it to the controller
        where the session is adaptive.
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
            raise InvalidRequest(f"min_confidence is {self.min_confidence}: it is a probability below 1.")
        if not 1 <= self.gamma <= MAX_GAMMA:
            raise InvalidRequest(f"gamma is {self.gamma}: a block holds between 1 and {MAX_GAMMA} tokens.")
        if self.depth is not None and self.depth < 1:
            raise InvalidRequest(f"depth is {self.depth}: at least one block must be in flight.")

    @classmethod
    def of(
        cls, mode: Mode, gamma: int | None, depth: int | None = None, min_confidence: float | None = None
    ) -> DraftLength:
        """Give what is asked for; without a gamma the session chooses for itself."""
        return cls(mode, FIRST_GAMMA if gamma is None else gamma, depth, gamma is None, min_confidence)

    @property
    def longest(self) -> int:
        """Most tokens a block may come to hold."""
        return max(self.gamma, MAX_ADAPTIVE_GAMMA) if self.is_adaptive else self.gamma

    @property
    def first_depth(self) -> int:
        """Blocks in flight while nothing is measured."""
        return 1 if self.mode.is_lock_step else self.depth or DEPTH
