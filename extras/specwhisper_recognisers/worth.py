"""Decide whether a recogniser's text is worth its time in a session.

Pure: what the target and the recogniser did goes in, a pause or none comes out.

One thread recognises the audio of all sessions. If that takes too long, the target is ahead, and text for
audio that it has decoded brings nothing. Wrong text counts against the recogniser as well: verifying it takes
the target's time. Text of live audio also brings what the client is shown until the target's is final.
"""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper.types import SAMPLE_RATE, Commit, WindowOpened

TRIAL_SAMPLES = 60 * SAMPLE_RATE  # that the target has done when the text is judged: two windows or more
PAUSE_SAMPLES = 5 * TRIAL_SAMPLES  # then it tries again
MAX_LATE = 0.5  # share of the audio
MIN_GAIN = 0.02  # share of the target's time that it has to save
# Why it pauses.
IS_LATE = "paused: the recogniser is slower than the target"
SAVES_NOTHING = "paused: the target alone is as fast"


@dataclass(slots=True)
class Trial:
    """The work of a recogniser since the last trial, and what it brought.

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


def judge(trial: Trial, *, is_live: bool) -> str:
    """Return why a recogniser pauses after a trial; empty if it does not."""
    is_late = trial.num_late > MAX_LATE * trial.num_samples
    if is_live:
        return IS_LATE if is_late else ""
    if trial.saved_ns >= MIN_GAIN * (trial.target_ns + trial.saved_ns):
        return ""
    return IS_LATE if is_late else SAVES_NOTHING


class Worth:
    """Collects what one session's recogniser brings, and decides when it pauses.

    Attributes
    ----------
    pause : why no audio is to be recognised now; empty while it is.
    """

    def __init__(self, *, is_live: bool) -> None:
        self.pause = ""
        self._is_live = is_live
        self._num_prompt = self._num_known = 0  # tokens of the open window
        self._since: int | None = None
        self._trial = Trial()

    def observe_audio(self, num_samples: int, *, is_late: bool) -> None:
        """Add audio that was recognised or skipped, late if the target had done it."""
        self._trial.num_samples += num_samples
        self._trial.num_late += num_samples * is_late

    def observe_window(self, opened: WindowOpened) -> None:
        self._num_prompt, self._num_known = len(opened.window.prompt), len(opened.opening)

    def observe_commit(self, commit: Commit) -> None:
        if not commit.tokens:
            return
        timing = commit.timing
        self._trial.target_ns += timing.forward_ns
        if commit.base >= self._num_known:  # the first candidates are from the target's own earlier text
            num_right = commit.num_accepted - commit.num_drafted_accepted
            num_further = commit.num_verified + (0 if commit.base else self._num_prompt - 1)
            alone_ns = max(0, timing.forward_ns - num_further * timing.token_ns)
            self._trial.saved_ns += num_right * alone_ns - commit.num_hinted * timing.token_ns

    def observe_target(self, sample: int) -> None:
        """Note that the target has done all audio before a sample.

        If that is enough for a trial, or to end a pause, choose again.
        """
        if self._since is None:
            self._since = sample
        num_samples = sample - self._since
        if self.pause and num_samples >= PAUSE_SAMPLES:
            self._begin("", sample)
        elif not self.pause and num_samples >= TRIAL_SAMPLES:
            self._begin(judge(self._trial, is_live=self._is_live), sample)

    def _begin(self, pause: str, sample: int) -> None:
        self.pause, self._since, self._trial = pause, sample, Trial()
