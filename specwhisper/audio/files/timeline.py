"""Find the silence before each frame of a track, by the container's times."""

from __future__ import annotations

from specwhisper.audio.files.damage import Damage

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
    begin_s, end_s : of the frames so far; ``None`` where the container has no times.
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
        """Note that audio of a known length is missing after the last frame."""
        self._damage.lose(lost_s)
        self.lost_s += lost_s
        self._pending_s += lost_s
        if self.end_s is not None:
            self.end_s += lost_s

    def silence_before(self, begin_s: float | None, frame_s: float) -> float:
        """Add a frame; return the seconds of silence before it."""
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
