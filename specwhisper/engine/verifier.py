"""The target's engine: transcribes many sessions in shared forward passes.

It owns no thread, socket or timer: :meth:`Verifier.submit` takes messages, :meth:`Verifier.step` runs one
forward pass and returns the answers. One process calls it directly; the target server runs it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.engine.alignments import Alignments, Waiting
from specwhisper.engine.batching import Batching
from specwhisper.engine.encodings import Encodings
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.engine.window_opener import WhisperPlan, WindowOpener
from specwhisper.errors import DeviceFault, InvalidRequest, OutOfMemory, ServerFull, UnsupportedOption
from specwhisper.live import LivePosition
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.faults import is_device_fault, is_out_of_memory
from specwhisper.model.forward import run_forward
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.admission import FreeSlots, ResponseTime
from specwhisper.transcription.hints.session import HintBuilder
from specwhisper.transcription.windows import TokenLimit, Windows
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    ConfirmEvery,
    Failed,
    FromTarget,
    Limits,
    Mode,
    Resume,
    TimedHint,
    Timing,
    ToTarget,
)

logger = logging.getLogger(__name__)

CANDIDATES_TIMEOUT_NS = 5_000_000_000  # then the target decodes one token by itself: blocks may be lost


class Verifier:
    """Verifies candidates, and decodes by itself where there are none.

    It does not check token ids: check those from a network against the vocabulary first.

    Parameters
    ----------
    executor : runs encodings, and begins them in order.
    aligner : aligns words beside the forward passes; by default ``executor`` does it too.
    clock : returns the time in nanoseconds, from any origin.
    wake : called, from any thread, when the executors are done and :meth:`step` has work.
    max_width : most draft tokens of a session in a forward pass; a hint may add ``MAX_REACH``.
    max_num_batched_tokens : most tokens in a forward pass (:func:`speculation.scheduling.next_batch`).
    latency_budget_ms : sessions are refused while the mean response time would exceed it.
    max_new_tokens : limit of a window's tokens where the options name none.
    plan : returns the windows of a session; by default Whisper's, sequential or live.
    """

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        aligner: Executor | None = None,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        max_width: int = DEFAULT_MAX_WIDTH,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        latency_budget_ms: float | None = None,
        max_new_tokens: TokenLimit | None = None,
        plan: Callable[[DecodingOptions], Windows] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        self._alignments = Alignments(model, aligner or executor, clock)
        self._clock = clock
        self._wake = wake
        self._response_time = ResponseTime(latency_budget_ms)
        self._batching = Batching(
            model.length,
            max_width=max_width,
            max_num_tokens=max_num_batched_tokens,
        )
        self._hints = HintBuilder(model.vocabulary, model.tokenize)
        self._plan = plan or WhisperPlan(model, max_new_tokens)
        self._slots = FreeSlots(model.num_slots, "The target")
        self._opener = WindowOpener(
            model, Encodings(executor, wake), clock, is_open=self._is_open, reply=self._reply
        )
        self._sessions: dict[str, VerifierState] = {}
        self._outbox: list[tuple[str, FromTarget]] = []
        self._last_step_only_answered = False

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened."""
        return self._slots.num_free

    @property
    def num_slots(self) -> int:
        """Sessions that can be open at once."""
        return self._slots.num_slots

    @property
    def held_audio_bytes(self) -> int:
        """Audio of all sessions in memory; thread-safe."""
        return sum(session.recording.held_bytes for session in list(self._sessions.values()))

    @property
    def answer_ms(self) -> float:
        """Recent mean response time, for as many sessions as there are now."""
        return self._response_time.expected_ms(len(self._sessions))

    @property
    def next_answer_ms(self) -> float:
        """The same with one session more; 0 before the first forward pass."""
        return self._response_time.expected_ms(len(self._sessions) + 1)

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        sessions = self._sessions.values()
        if self._outbox or any(self._opener.can_advance(session) for session in sessions):
            return True
        if any(session.is_runnable for session in sessions):
            return True
        return any(self._has_timed_out(session, self._clock()) for session in sessions)

    @property
    def wake_after_s(self) -> float:
        """Seconds until :meth:`step` has work by itself; 0 if it never has."""
        now_ns = self._clock()
        waits_ns = [
            session.ready_ns + CANDIDATES_TIMEOUT_NS - now_ns
            for session in self._sessions.values()
            if session.awaits_candidates
        ]
        return max(0.0, min(waits_ns, default=0.0)) / 1e9

    @staticmethod
    def _has_timed_out(session: VerifierState, now_ns: int) -> bool:
        """Return whether a session has waited too long for candidates."""
        return session.awaits_candidates and now_ns - session.ready_ns >= CANDIDATES_TIMEOUT_NS

    def check_room(self) -> int:
        """Return the number of free slots.

        Raises
        ------
        ServerFull
            if no slot is free, or one more session would exceed the latency budget.
        """
        self._slots.check_free()
        num_sessions, response_time = len(self._sessions), self._response_time
        if not response_time.has_room(num_sessions):
            raise ServerFull(
                f"With {num_sessions + 1} sessions the target would answer in "
                f"{response_time.expected_ms(num_sessions + 1):.0f} ms, more than its "
                f"{response_time.budget_ms:.0f} ms: try again later."
            )
        return self._slots.num_free

    def open(self, session_id: str, mode: Mode, options: DecodingOptions) -> None:
        """Open a session.

        Raises
        ------
        ServerFull
            see :meth:`check_room`.
        InvalidRequest, UnsupportedOption
            if the id is in use, or this model lacks an option.
        """
        self.check_room()
        if session_id in self._sessions:
            raise InvalidRequest(f"Session '{session_id}' exists already: choose another name.")
        windows, recording = self._plan(options), Recording(options.log_mel_max, options.padding)
        if options.word_timestamps and not self._model.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: leave word_timestamps out.")
        self._sessions[session_id] = VerifierState(
            id=session_id,
            slot=self._slots.take(),  # last, so that an error takes no slot
            mode=mode,
            options=options,
            limits=self.limits,
            recording=recording,
            windows=windows,
            hints=self._hints.of_session(mode, options, lambda: self._batching.time.token_share),
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; without effect if it has ended already.

        An alignment that still runs does not use the slot. An encoding may still write into it: the next
        session's encoding waits for that.
        """
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.aligning is not None:
            session.aligning.cancel()
        session.commit = None
        session.wait_for(None)
        self._model.rollback(session.slot, 0)  # frees the memory of models without reserved slots
        self._slots.give_back(session.slot)

    def submit(
        self, session_id: str, message: ToTarget | LivePosition, received_ns: int | None = None
    ) -> None:
        """Take a message; an error in it ends its session only.

        Parameters
        ----------
        received_ns : when it arrived, by the engine's clock; by default now.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.append_audio(message)
                case Candidates():
                    now_ns = self._clock()
                    if (answer := session.offer(message, received_ns or now_ns, now_ns)) is not None:
                        self._reply(session, answer)
                case TimedHint():
                    session.hint(message, self._hints.live, received_ns or self._clock())
                case ConfirmEvery():
                    session.windows.confirm_every(message.interval_ms)
                    session.reconsider()
                case LivePosition():
                    session.begin_at(message)
                case Resume():
                    session.resume(message, self._model.vocabulary, self._model.num_mel_bins)
        except Exception as error:
            self._fail(session, error)

    def step(self) -> list[tuple[str, FromTarget]]:
        """Advance all sessions, run at most one forward pass, and return all answers.

        Answers that need no forward pass are returned at once, without one; but not in two steps in a row, so
        that a client with many messages cannot stop the forward passes.
        """
        # The session that has waited longest since its last window is encoded first.
        ready = filter(self._opener.can_advance, self._sessions.values())
        for session in sorted(ready, key=lambda session: (session.windows.may_wait, session.opened_ns)):
            try:
                if self._opener.can_advance(session):  # still, after the ones before
                    self._advance(session)
            except Exception as error:
                self._fail(session, error)
        now_ns = self._clock()
        for session in self._sessions.values():
            if self._has_timed_out(session, now_ns):
                session.stop_waiting(now_ns)
        self._last_step_only_answered = bool(self._outbox) and not self._last_step_only_answered
        if not self._last_step_only_answered:
            if batch := self._batching.choose(self._sessions.values()):
                self._run_forward(batch)
        events, self._outbox = self._outbox, []
        return events

    def _run_forward(self, batch: Mapping[VerifierState, int]) -> None:
        """Run a forward pass and commit its tokens."""
        sessions = {session.slot: session for session in batch}
        rows = [
            session.row(self._model.length(session.slot), num_candidates, self._model.vocabulary)
            for session, num_candidates in batch.items()
        ]

        def on_scores(
            rows: Sequence[Row], scores: Sequence[Scores], started_ns: int, forward_ns: int
        ) -> None:
            self._batching.observe_forward([len(row.tokens) for row in rows], forward_ns)
            now_ns, num_sessions = self._clock(), len(self._sessions)
            token_ns = round(self._batching.time.token_ns)
            for row, score in zip(rows, scores, strict=True):
                session = sessions[row.slot]
                queue_ns, opened = started_ns - session.ready_ns, session.open_window
                self._response_time.observe(queue_ns + forward_ns, num_sessions)
                block_age_ns = opened.block_age_ns(now_ns) if opened is not None else 0
                timing = Timing(
                    queue_ns, forward_ns, session.encode_ns, len(rows), block_age_ns, token_ns=token_ns
                )
                try:
                    session.commit = self._commit(session, row, score, timing, now_ns)
                    self._continue_commit(session)
                except Exception as error:
                    self._fail(session, error)
            for session in self._sessions.values():
                if session.awaits_candidates:
                    session.reconsider()

        run_forward(
            self._model,
            rows,
            clock=self._clock,
            on_scores=on_scores,
            on_error=lambda row, error: self._fail(sessions[row.slot], error),
        )

    def _continue_commit(self, session: VerifierState) -> None:
        """Run a session's commit to its end, or until it waits for the executor."""
        session.wait_for(None)
        for aligning in session.commit or ():
            if not aligning.done():
                session.wait_for(aligning)
                aligning.add_done_callback(lambda _: self._wake())
                return
        session.commit = None

    def _commit(
        self, session: VerifierState, row: Row, scores: Scores, timing: Timing, now_ns: int
    ) -> Waiting[None]:
        """Accept, roll back and reply; yield futures to wait for."""
        opened = session.open_window
        if opened is None:
            if scores.probe_result is not None:
                session.detect_language(scores.probe_result, timing.forward_ns)
            self._model.rollback(session.slot, 0)
            return
        window, base = opened.window, opened.num_committed
        verdict = accept(
            row.candidates,
            scores.tokens,
            ends=self._model.vocabulary.ends | session.windows.stops,
            budget=window.max_new_tokens - base,
        )
        self._model.rollback(session.slot, len(window.prompt) + base + verdict.num_accepted)
        commit = session.append(verdict, scores, timing, row.num_candidates, now_ns)
        if verdict.is_final:
            commit = yield from self._alignments.complete(session, opened, commit)
            if session.open_window is None and session.windows.language is None:
                self._model.rollback(session.slot, 0)  # the language may be detected in the slot next
        self._reply(session, commit)

    def _advance(self, session: VerifierState) -> None:
        """Let a session leave its phase: the executor is done, or audio has arrived."""
        if session.aligning is not None:
            self._continue_commit(session)
        else:
            self._opener.advance(session)

    def _is_open(self, session: VerifierState) -> bool:
        return self._sessions.get(session.id) is session

    def _fail(self, session: VerifierState, error: Exception) -> None:
        """End a session by an error; raise :class:`DeviceFault` if it ends all sessions."""
        if is_device_fault(error):
            raise DeviceFault(f"The target's device has failed: {error}") from error
        if is_out_of_memory(error):
            logger.error("out of memory", extra={"session": session.id, "error": str(error)})
            error = OutOfMemory("The target has no memory for this session: resume elsewhere, or later.")
        self._reply(session, Failed(error))
        self.close(session.id)

    def _reply(self, session: VerifierState, event: FromTarget) -> None:
        self._outbox.append((session.id, event))
