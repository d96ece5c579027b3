"""The target's engine: transcribes many sessions at once, every pass shared by all that have something to do.

It owns no thread, socket or clock tick: messages go in by :meth:`Verifier.submit`, :meth:`Verifier.step`
runs one pass and gives the answers. One process calls it directly; the target server runs it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.acceptance import accept
from specwhisper.transcription.windows import SequentialWindows
from specwhisper.types import (
    AudioChunk,
    Candidates,
    DecodingOptions,
    Failed,
    Finished,
    FromTarget,
    Limits,
    Mode,
    Resume,
    Timing,
    ToTarget,
    Window,
    WindowOpened,
)
from specwhisper.whisper.model import Model, Row, Scores
from specwhisper.whisper.slots import Slots
from specwhisper.whisper.verifier_session import VerifierSession

logger = logging.getLogger(__name__)


class Verifier:
    """Verifies candidates and decodes by itself where there are none.

    It trusts token ids: whoever takes messages from elsewhere checks them against the vocabulary first.

    Parameters
    ----------
    executor : runs encodings one after the other: a slot's new owner encodes behind its last one.
    wake : called, from any thread, when an encoding is done and :meth:`step` has something to do.
    max_width : most candidates one session may put into one pass.
    """

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        wake: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        max_width: int = 16,
        max_new_tokens: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        self._executor = executor
        self._wake = wake
        self._max_width = max_width
        self._max_new_tokens = max_new_tokens
        self._slots = Slots(model.num_slots, "The target")
        self._sessions: dict[str, VerifierSession] = {}
        self._outbox: list[tuple[str, FromTarget]] = []

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened."""
        return self._slots.num_free

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        return bool(self._outbox) or any(s.is_runnable or s.can_advance for s in self._sessions.values())

    def open(self, session_id: str, mode: Mode, options: DecodingOptions) -> None:
        """Open a session; :class:`ServerFull` when every slot is taken."""
        if session_id in self._sessions:
            raise InvalidRequest(f"Session '{session_id}' exists already: choose another name.")
        windows = SequentialWindows(self._model.vocabulary, options, max_new_tokens=self._max_new_tokens)
        recording = Recording(options.log_mel_max)
        self._sessions[session_id] = VerifierSession(
            id=session_id,
            slot=self._slots.take(),
            mode=mode,
            timestamps=options.timestamps,
            limits=self.limits,
            recording=recording,
            windows=windows,
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; of no effect when it is gone already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.encoding is not None:
            session.encoding.cancel()
        self._slots.give_back(session.slot)

    def submit(self, session_id: str, message: ToTarget) -> None:
        """Take in a message; what is wrong with it ends its own session and no other."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.hear(message)
                case Candidates():
                    if (answer := session.offer(message)) is not None:
                        self._reply(session, answer)
                case Resume():
                    session.resume(message, self._model.vocabulary, self._model.num_mel_bins)
        except Exception as error:
            self._fail(session, error)

    def step(self) -> list[tuple[str, FromTarget]]:
        """Run one pass over all sessions that have something to do, and give everybody's answers."""
        for session in list(self._sessions.values()):
            try:
                self._advance(session)
            except Exception as error:
                self._fail(session, error)
        batch = [session for session in self._sessions.values() if session.is_runnable]
        if batch:
            self._run_pass(batch)
        events, self._outbox = self._outbox, []
        return events

    def _run_pass(self, batch: list[VerifierSession]) -> None:
        """Collect, forward, accept, roll back, reply; if that fails, one by one, so that one alone ends."""
        started_ns = perf_counter_ns()
        held = [self._model.length(session.slot) for session in batch]
        rows = [session.row(length, self._max_width) for session, length in zip(batch, held, strict=True)]
        try:
            scores = self._model.score(rows)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0], error)
                return
            logger.warning("pass repeated", extra={"sessions": len(batch), "error": str(error)})
            for session, length in zip(batch, held, strict=True):
                self._model.rollback(session.slot, length)
                self._run_pass([session])
            return
        forward_ns = perf_counter_ns() - started_ns
        for session, row, score in zip(batch, rows, scores, strict=True):
            timing = Timing(started_ns - session.ready_ns, forward_ns, session.encode_ns, len(batch))
            try:
                self._commit(session, row, score, timing)
            except Exception as error:
                self._fail(session, error)

    def _commit(self, session: VerifierSession, row: Row, scores: Scores, timing: Timing) -> None:
        """Append what the target chose, forget the rejected keys and values, and tell the draft."""
        window, base = session.open_window, len(session.ledger.committed)
        verdict = accept(
            row.tokens[len(row.tokens) - row.num_candidates :],
            scores.tokens,
            end_of_text=self._model.vocabulary.end_of_text,
            budget=window.max_new_tokens - base,
        )
        self._model.rollback(session.slot, len(window.prompt) + base + verdict.num_accepted)
        self._reply(session, session.append(verdict, scores, timing, num_verified=row.num_candidates))

    def _advance(self, session: VerifierSession) -> None:
        """Note a finished encoding, open the next window, or finish."""
        if not session.can_advance:
            return
        if session.encoding is not None:
            session.encode_ns = session.encoding.result()
            session.encoding = None
            session.ready_ns = perf_counter_ns()
            return
        num_frames = session.recording.window_frames(session.windows.next_frame)
        if num_frames == 0:
            session.is_finished = True
            self._reply(session, Finished())
            return
        window = session.begin_window(num_frames)
        # What was heard before this window is all that another replica cannot know of its ceiling.
        ceiling = session.recording.log_mel_ceiling(window.start_frame, self._model.num_mel_bins)
        session.encoding = self._executor.submit(self._encode, session.slot, session.recording, window)
        session.encoding.add_done_callback(lambda _: self._wake())
        self._reply(session, WindowOpened(window, ceiling))

    def _encode(self, slot: int, recording: Recording, window: Window) -> int:
        """Encode a window into the slot, on the executor; give the nanoseconds it took."""
        started_ns = perf_counter_ns()
        self._model.encode(slot, recording, window.start_frame)
        return perf_counter_ns() - started_ns

    def _fail(self, session: VerifierSession, error: Exception) -> None:
        self._reply(session, Failed(error))
        self.close(session.id)

    def _reply(self, session: VerifierSession, event: FromTarget) -> None:
        self._outbox.append((session.id, event))
