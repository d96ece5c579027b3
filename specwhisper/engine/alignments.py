"""Find where the decoder attended in a window, for AlignAtt or word times.

The engine's thread runs one more forward pass over the window. The slower rest runs on an executor: commits
are generators that yield the futures they wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any, TypeVar

from specwhisper.engine.target_window import TargetWindow
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.model.model import Model
from specwhisper.speculation.acceptance import Verdict
from specwhisper.types import Commit, Outcome, WordAlignment

T = TypeVar("T")

Waiting = Generator[Future[Any], None, T]  # yields futures to wait for, returns a result


class Alignments:
    """The alignments of one commit; they append nothing and are counted apart.

    Attributes
    ----------
    num_forwards, align_ns : their forward passes, and their time in the engine and on the executor.
    """

    def __init__(self, model: Model, executor: Executor, clock: Callable[[], int]) -> None:
        self._model = model
        self._executor = executor
        self._clock = clock
        self.num_forwards = self.align_ns = 0

    def attended_ms(
        self, session: VerifierState, opened: TargetWindow, verdict: Verdict
    ) -> Waiting[tuple[float, ...]]:
        """Find the attended time of each text token of a window that ends, for AlignAtt."""
        if not (verdict.is_final and session.windows.attends):
            return ()
        window, tokens = opened.window, [*opened.ledger.committed, *verdict.tokens]
        return (
            yield from self._align(
                lambda: self._model.attended_ms(session.slot, window, tokens, window.num_frames)
            )
        )

    def complete(self, session: VerifierState, opened: TargetWindow, commit: Commit) -> Waiting[Commit]:
        """Return a window's last commit with its words.

        They may decide what is kept of the window.
        """
        words = yield from self._words(session, opened, commit)
        closed, windows = session.closed, session.windows
        if closed is not None and windows.reviews and commit.outcome is Outcome.KEPT:
            tokens, log_probs = opened.ledger.committed, opened.log_probs
            session.closed = closed = windows.review(closed, opened.window, tokens, log_probs, words)
            session.reconsider()
            end = closed.num_transcribed
            commit = replace(commit, num_transcribed=end)
            words = tuple(word for word in words if end is None or word.base < end)
        if not self.num_forwards:
            return commit
        timing = replace(commit.timing, align_ns=self.align_ns)
        return replace(commit, words=words, num_align_forwards=self.num_forwards, timing=timing)

    def _words(
        self, session: VerifierState, opened: TargetWindow, commit: Commit
    ) -> Waiting[tuple[WordAlignment, ...]]:
        """Find the words of a window that has just closed, if word times are requested."""
        closed, window = session.closed, opened.window
        is_kept = commit.is_final and commit.outcome is Outcome.KEPT
        if closed is None or not (is_kept and session.options.word_timestamps):
            return ()
        start, end = 0, sum(len(segment.tokens) for segment in closed.segments)
        if closed.step is not None:
            start, end = closed.step.final_start, closed.step.final_end
        if start == end:
            return ()
        num_frames = min(window.num_frames, session.recording.audio_frames - window.start_frame)
        tokens = opened.ledger.committed
        words = yield from self._align(lambda: self._model.align(session.slot, window, tokens, num_frames))
        return tuple(word for word in words if start <= word.base < end)

    def _align(self, begin: Callable[[], Callable[[], T]]) -> Waiting[T]:
        """Begin an alignment in this thread and finish it on the executor."""
        started_ns = self._clock()
        finish = begin()
        self.align_ns += self._clock() - started_ns

        def run() -> tuple[T, int]:
            started_ns = self._clock()
            return finish(), self._clock() - started_ns

        future = self._executor.submit(run)
        yield future
        result, took_ns = future.result()
        self.num_forwards += 1
        self.align_ns += took_ns
        return result
