"""Where the decoder looked: one more pass over a window that is complete, for AlignAtt or for word times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specwhisper.speculation.acceptance import Verdict
from specwhisper.types import Commit, Outcome, Window, WordAlignment
from specwhisper.whisper.model import Model
from specwhisper.whisper.verifier_session import VerifierSession


class Alignments:
    """The passes of one commit that look at attention; they append nothing, and are counted apart.

    Attributes
    ----------
    num_passes, align_ns : how many there were, and what they took.
    """

    def __init__(self, model: Model, clock: Callable[[], int]) -> None:
        self._model = model
        self._clock = clock
        self.num_passes = self.align_ns = 0

    def attended_ms(self, session: VerifierSession, verdict: Verdict) -> tuple[float, ...]:
        """Tell where the decoder looked for each text token of a window that ends, where that matters."""
        if not (verdict.is_final and session.windows.attends):
            return ()
        window = session.open_window
        tokens = [*session.ledger.committed, *verdict.tokens]
        with self._counted():
            return self._model.attended_ms(session.slot, window, tokens, window.num_frames)

    def words(self, session: VerifierSession, window: Window, commit: Commit) -> tuple[WordAlignment, ...]:
        """Find the words of the window that was just closed that are of the transcript, where asked for."""
        is_kept = commit.is_final and commit.outcome is Outcome.KEPT
        if session.closed is None or not (is_kept and session.options.word_timestamps):
            return ()
        step = session.closed.step
        start, end = 0, sum(len(segment.tokens) for segment in session.closed.segments)
        if step is not None:
            start, end = step.final_start, step.final_end
        if start == end:
            return ()
        num_frames = min(window.num_frames, session.recording.audio_frames - window.start_frame)
        with self._counted():
            words = self._model.align(session.slot, window, session.ledger.committed, num_frames)
        return tuple(word for word in words if start <= word.base < end)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started_ns = self._clock()
        yield
        self.num_passes += 1
        self.align_ns += self._clock() - started_ns
