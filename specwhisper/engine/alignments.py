"""Where the decoder looked: one more pass over a window that is complete, for AlignAtt or for word times.

The engine's thread feeds the slot, like in any forward pass. What follows, and takes longer, runs on an
executor: commits are generators that yield what they wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from specwhisper.engine.verifier_state import VerifierState
from specwhisper.model.model import Model
from specwhisper.speculation.acceptance import Verdict
from specwhisper.types import Commit, Outcome, Window, WordAlignment

T = TypeVar("T")

Waiting = Generator[Future[Any], None, T]  # yields futures to wait for, returns a result


class Alignments:
    """The passes of one commit that look at attention; they append nothing, and are counted apart.

    Attributes
    ----------
    num_forwards, align_ns : how many there were, and what they took, in the engine and on the executor.
    """

    def __init__(self, model: Model, executor: Executor, clock: Callable[[], int]) -> None:
        self._model = model
        self._executor = executor
        self._clock = clock
        self.num_forwards = self.align_ns = 0

    def attended_ms(self, session: VerifierState, verdict: Verdict) -> Waiting[tuple[float, ...]]:
        """Find where the decoder looked for each text token of a window that ends, where that matters."""
        if not (verdict.is_final and session.windows.attends):
            return ()
        window = session.open_window
        tokens = [*session.ledger.committed, *verdict.tokens]
        return (
            yield from self._aligned(
                lambda: self._model.attended_ms(session.slot, window, tokens, window.num_frames)
            )
        )

    def words(
        self, session: VerifierState, window: Window, commit: Commit
    ) -> Waiting[tuple[WordAlignment, ...]]:
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
        tokens = session.ledger.committed
        words = yield from self._aligned(lambda: self._model.align(session.slot, window, tokens, num_frames))
        return tuple(word for word in words if start <= word.base < end)

    def _aligned(self, begin: Callable[[], Callable[[], T]]) -> Waiting[T]:
        """Begin here, end on the executor."""
        started_ns = self._clock()
        end = begin()
        self.align_ns += self._clock() - started_ns

        def run() -> tuple[T, int]:
            started_ns = self._clock()
            return end(), self._clock() - started_ns

        future = self._executor.submit(run)
        yield future
        result, took_ns = future.result()
        self.num_forwards += 1
        self.align_ns += took_ns
        return result
