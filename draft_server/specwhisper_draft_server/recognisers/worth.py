"""Decide whether a recogniser's text is worth its time in a session.

Pure: what the target and the recogniser did goes in, a choice comes out.

====================  =============================================  =========================================
Audio                 The text brings                                It pauses where
====================  =============================================  =========================================
of a recording        forward passes that the target saves with it   they are less than :data:`MIN_GAIN` of
                                                                     the target's time
live                  the same, and what the client is shown until   most of the audio was final before it was
                      the target's text is final                     recognised
====================  =============================================  =========================================

One thread recognises the audio of all sessions. So its time counts where it is too long: the target is then
ahead, and the text of audio that it has decoded brings nothing. What text wrongly predicts counts as well:
the target takes time for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper.speculation.controller import MIN_GAIN, Choice
from specwhisper.speculation.forward_time import ForwardTime
from specwhisper.types import SAMPLE_RATE, Commit, WindowOpened

TRIAL_SAMPLES = 60 * SAMPLE_RATE  # that the target has done when the text is judged: two windows or more
PAUSE_SAMPLES = 5 * TRIAL_SAMPLES  # then it tries again
MAX_LATE = 0.5  # of the audio
# It sends text, not blocks: ``max_ahead`` says no more than whether it pauses.
NOT_MEASURED = Choice(0, 1, "nothing is measured yet")
TRIES_AGAIN = Choice(0, 1, "paused, but tries again")
HELPS = Choice(0, 1, "the recogniser's text is worth its time")
IS_LATE = Choice(0, 0, "paused: the recogniser is slower than the target")
SAVES_NOTHING = Choice(0, 0, "paused: the target alone is as fast")


@dataclass(frozen=True, slots=True)
class Trial:
    """The work of a recogniser since the last choice, and what it brought.

    Attributes
    ----------
    saved_ns, target_ns : time that the target saved, and the time of its forward passes. Each right token
        saves a forward pass, and each token costs its place in one.
    num_samples, num_late : audio that was recognised or skipped; that of it which the target had decoded.
    """

    saved_ns: float = 0.0
    target_ns: float = 0.0
    num_samples: int = 0
    num_late: int = 0

    def __add__(self, later: Trial) -> Trial:
        return Trial(
            self.saved_ns + later.saved_ns,
            self.target_ns + later.target_ns,
            self.num_samples + later.num_samples,
            self.num_late + later.num_late,
        )


def judge(trial: Trial, *, is_live: bool) -> Choice:
    """Choose whether a recogniser pauses after a trial."""
    is_late = trial.num_late > MAX_LATE * trial.num_samples
    if is_live:
        return IS_LATE if is_late else HELPS
    if trial.saved_ns >= MIN_GAIN * (trial.target_ns + trial.saved_ns):
        return HELPS
    return IS_LATE if is_late else SAVES_NOTHING


class Worth:
    """Collects what one session's recogniser brings, and decides when it pauses.

    Attributes
    ----------
    choice : the last one.
    """

    def __init__(self, *, is_live: bool) -> None:
        self.choice = NOT_MEASURED
        self._is_live = is_live
        self._num_prompt = self._num_known = 0  # tokens of the open window
        self._forward = ForwardTime()
        self._token_ns = 0
        self._since: int | None = None
        self._trial = Trial()

    @property
    def is_paused(self) -> bool:
        """Whether no audio is to be recognised now."""
        return not self.choice.max_ahead

    def observe_audio(self, num_samples: int, *, is_late: bool) -> None:
        """Add audio that was recognised or skipped, late if the target had done it."""
        self._trial += Trial(num_samples=num_samples, num_late=num_samples * is_late)

    def observe_window(self, opened: WindowOpened) -> None:
        """Turn to a window that the target has opened."""
        self._num_prompt, self._num_known = len(opened.window.prompt), len(opened.opening)

    def observe_commit(self, commit: Commit) -> None:
        """Add a forward pass of the target."""
        if not commit.tokens:
            return
        timing = commit.timing
        self._forward.observe(
            (1 if commit.base else self._num_prompt) + commit.num_verified, timing.forward_ns
        )
        token_ns = timing.token_ns or self._forward.per_token_ns
        saved_ns = 0.0
        if commit.base >= self._num_known:  # the first candidates are from the target's own earlier text
            num_right = commit.num_accepted - commit.num_drafted_accepted
            alone_ns = self._forward.without_tokens_ns(token_ns) + token_ns
            saved_ns = num_right * alone_ns - commit.num_hinted * token_ns
        self._trial += Trial(saved_ns, timing.forward_ns)

    def observe_target(self, sample: int) -> None:
        """Note that the target has done all audio before a sample.

        If that is enough for a trial, or to end a pause, choose again.
        """
        if self._since is None:
            self._since = sample
        num_samples = sample - self._since
        if self.is_paused and num_samples >= PAUSE_SAMPLES:
            self._choose(TRIES_AGAIN, sample)
        elif not self.is_paused and num_samples >= TRIAL_SAMPLES:
            self._choose(judge(self._trial, is_live=self._is_live), sample)

    def _choose(self, choice: Choice, sample: int) -> None:
        self.choice, self._since, self._trial = choice, sample, Trial()
