"""Find when the words of a window are spoken.

The engine's thread runs one more forward pass over the window. The slower rest runs on an executor: commits
are generators that yield the futures they wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from specwhisper.audio.trimming import trimmed
from specwhisper.engine.target_window import TargetWindow
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.model.model import Model
from specwhisper.options import WordTimes
from specwhisper.types import Commit, Outcome, WordAlignment

T = TypeVar("T")
Words = tuple[WordAlignment, ...]
Waiting = Generator[Future[Any], None, T]  # yields futures to wait for, returns a result


@dataclass(frozen=True, slots=True)
class Alignments:
    """Aligns the words of windows; it appends nothing and is counted apart."""

    model: Model
    executor: Executor
    clock: Callable[[], int]

    def complete(self, session: VerifierState, opened: TargetWindow, commit: Commit) -> Waiting[Commit]:
        """Return a window's last commit with its words.

        They may decide what is kept of the window.
        """
        words: Words = ()
        timed: Words = ()
        if (span := _span(session, opened, commit)) is not None:
            words, timed, align_ns = yield from self._align(session, opened)
            words, timed = (tuple(word for word in each if word.base in span) for each in (words, timed))
            timing = replace(commit.timing, align_ns=align_ns)
            commit = replace(commit, num_align_forwards=1, timing=timing)
        closed, windows = session.closed, session.windows
        if closed is not None and windows.reviews and commit.outcome is Outcome.KEPT:
            tokens, log_probs = opened.ledger.committed, opened.log_probs
            session.closed = closed = windows.review(closed, opened.window, tokens, log_probs, words)
            session.reconsider()
            end = closed.num_transcribed
            commit = replace(commit, num_transcribed=end)
            timed = tuple(word for word in timed if end is None or word.base < end)
        return replace(commit, words=timed) if timed else commit

    def _align(self, session: VerifierState, opened: TargetWindow) -> Waiting[tuple[Words, Words, int]]:
        """Begin an alignment in this thread and finish it on the executor.

        Returns
        -------
        the words by cross-attention alone, the same as the session wants them, and the time it took.
        """
        started_ns, window = self.clock(), opened.window
        num_frames = min(window.num_frames, session.recording.audio_frames - window.start_frame)
        finish = self.model.align(session.slot, window, opened.ledger.committed, num_frames)
        is_trimmed = session.options.word_times is WordTimes.SOUND
        pcm = session.recording.pcm(window.start_frame, num_frames) if is_trimmed else b""
        begun_ns = self.clock() - started_ns

        def run() -> tuple[Words, Words, int]:
            started_ns = self.clock()
            words = finish()
            timed = trimmed(words, pcm, window.start_sample) if is_trimmed else words
            return words, timed, self.clock() - started_ns

        future = self.executor.submit(run)
        yield future
        words, timed, took_ns = future.result()
        return words, timed, begun_ns + took_ns


def _span(session: VerifierState, opened: TargetWindow, commit: Commit) -> range | None:
    """Return the tokens of a window that has just closed whose words are requested."""
    closed = session.closed
    is_kept = commit.is_final and commit.outcome is Outcome.KEPT
    if closed is None or not (is_kept and session.options.word_timestamps):
        return None
    if closed.piece is not None:
        return range(len(opened.window.prefix), opened.num_committed) or None
    return range(sum(len(segment.tokens) for segment in closed.segments)) or None
