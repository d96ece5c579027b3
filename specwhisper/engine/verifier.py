"""The target's engine: transcribes many sessions at once, every pass shared by all that have something to do.

It owns no thread, socket or clock tick: messages go in by :meth:`Verifier.submit`, :meth:`Verifier.step`
runs one pass and gives the answers. One process calls it directly; the target server runs it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from time import perf_counter_ns

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.recording import Recording
from specwhisper.engine.alignments import Alignments, Waiting
from specwhisper.engine.encodings import Encodings
from specwhisper.engine.slots import Slots
from specwhisper.engine.verifier_state import VerifierState
from specwhisper.errors import DeviceFault, InvalidRequest, OutOfMemory, ServerFull, UnsupportedOption
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.faults import is_device_fault, is_out_of_memory
from specwhisper.model.languages import language_code
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.admission import ResponseTime
from specwhisper.speculation.batching_delay import BatchingDelay
from specwhisper.speculation.scheduling import next_batch
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import Windows
from specwhisper.types import (
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    Failed,
    Finished,
    FromTarget,
    Limits,
    Mode,
    Resume,
    Timing,
    ToTarget,
    WindowOpened,
)

logger = logging.getLogger(__name__)

DEFAULT_MAX_NUM_BATCHED_TOKENS = 256  # of all sessions in one pass; what is over waits for the next
MAX_SILENCE_NS = 5_000_000_000  # after which a session no longer waits for candidates: they may be lost


class Verifier:
    """Verifies candidates and decodes by itself where there are none.

    It trusts token ids: whoever takes messages from elsewhere checks them against the vocabulary first.

    Parameters
    ----------
    executor : runs encodings, and begins them in order.
    aligner : finds where words lie, beside the forward passes; by default ``executor`` does it too.
    clock : tells the time, in nanoseconds from any moment; a simulation has one of its own.
    wake : called, from any thread, when the executors are done and :meth:`step` has something to do.
    has_batching_delay : whether passes are put off for candidates on their way, by :attr:`wake_after_s`.
    max_width : most candidates one session may put into one pass.
    max_num_batched_tokens : most tokens in one forward pass (:func:`speculation.scheduling.next_batch`).
    latency_budget_ms : sessions are refused when answers would take longer than this on average.
    plan : decides which windows a session has; by default Whisper's, or those of live audio.
    """

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        aligner: Executor | None = None,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        has_batching_delay: bool = False,
        limits: Limits | None = None,
        max_width: int = DEFAULT_MAX_WIDTH,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        latency_budget_ms: float | None = None,
        max_new_tokens: int | None = None,
        plan: Callable[[DecodingOptions], Windows] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        self._executor = executor
        self._aligner = aligner or executor
        self._clock = clock
        self._wake = wake
        self._has_batching_delay = has_batching_delay
        self._max_width = max_width
        self._max_num_batched_tokens = max_num_batched_tokens
        self._answer_time = ResponseTime(latency_budget_ms)
        self._batching_delay = BatchingDelay()
        self._last_forward_ns = 0  # when it ended
        self._max_new_tokens = max_new_tokens
        self._plan = plan or self._windows
        self._slots = Slots(model.num_slots, "The target")
        self._encodings = Encodings()
        self._last_encodings: dict[int, Future[int]] = {}  # of each slot
        self._sessions: dict[str, VerifierState] = {}
        self._outbox: list[tuple[str, FromTarget]] = []
        self._answers_first = False

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
        """Audio of all sessions that is in memory; of use to any thread."""
        recordings = [session.recording for session in list(self._sessions.values())]
        return sum(BYTES_PER_SAMPLE * (each.received_samples - each.first_sample) for each in recordings)

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        sessions = self._sessions.values()
        if self._outbox or any(self._can_advance(session) for session in sessions):
            return True
        if any(session.is_runnable for session in sessions) and not self._puts_off_ns:
            return True
        return any(self._is_overdue(session) for session in sessions)

    @property
    def wake_after_s(self) -> float:
        """For how long :meth:`step` has nothing to do, unless there is news; 0 where only news helps."""
        now_ns = self._clock()
        waits_ns: list[float] = [
            session.ready_ns + MAX_SILENCE_NS - now_ns
            for session in self._sessions.values()
            if session.awaits_candidates
        ]
        if puts_off_ns := self._puts_off_ns:
            waits_ns.append(puts_off_ns)
        return max(0.0, min(waits_ns, default=0.0)) / 1e9

    @property
    def _puts_off_ns(self) -> float:
        """For how long the next pass is put off, since more candidates are on their way."""
        runnable = [session for session in self._sessions.values() if session.is_runnable]
        if not self._has_batching_delay or not runnable:
            return 0.0
        could_begin_ns = max(self._last_forward_ns, min(session.ready_ns for session in runnable))
        awaited = (a for session in self._sessions.values() if (a := session.next_candidates) is not None)
        return max(0.0, self._batching_delay.start_ns(could_begin_ns, awaited) - self._clock())

    def _is_overdue(self, session: VerifierState) -> bool:
        """Tell whether a session has waited for candidates for too long."""
        return session.awaits_candidates and self._clock() - session.ready_ns >= MAX_SILENCE_NS

    def open(self, session_id: str, mode: Mode, options: DecodingOptions) -> None:
        """Open a session; :class:`ServerFull` when every slot is taken or answers would take too long."""
        self.check_room()
        if session_id in self._sessions:
            raise InvalidRequest(f"Session '{session_id}' exists already: choose another name.")
        options = replace(options, language=language_code(options.language))
        windows, recording = self._plan(options), Recording(options.log_mel_max)
        if options.word_timestamps and not self._model.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: leave word_timestamps out.")
        if windows.attends and not self._model.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: align-att is not for it.")
        self._sessions[session_id] = VerifierState(
            id=session_id,
            slot=self._slots.take(),  # last: what fails before it takes none
            mode=mode,
            options=options,
            limits=self.limits,
            recording=recording,
            windows=windows,
        )

    @property
    def answer_ms(self) -> float:
        """How long sessions wait for an answer of late, as many as there are now."""
        return self._answer_time.expected_ms(len(self._sessions))

    def check_room(self) -> int:
        """Give how many slots are free; :class:`ServerFull` unless one more session can be opened."""
        self._slots.check_free()
        num_sessions, answer_time = len(self._sessions), self._answer_time
        if not answer_time.has_room(num_sessions):
            raise ServerFull(
                f"With {num_sessions + 1} sessions the target would answer in "
                f"{answer_time.expected_ms(num_sessions + 1):.0f} ms, more than its "
                f"{answer_time.budget_ms:.0f} ms: try again later."
            )
        return self._slots.num_free

    def _windows(self, options: DecodingOptions) -> Windows:
        words = PromptText(
            initial=self._model.tokenize(options.initial_prompt),
            hotwords=self._model.tokenize(options.hotwords),
            is_carried=options.carry_initial_prompt,
        )
        kind = SequentialWindows if options.live is None else LiveWindows
        return kind(self._model.vocabulary, options, words, max_new_tokens=self._max_new_tokens)

    def close(self, session_id: str) -> None:
        """End a session and free its slot; of no effect when it is gone already.

        An alignment that is under way reads nothing of the slot; an encoding may still write into it, and
        the next owner's waits for that.
        """
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.aligning is not None:
            session.aligning.cancel()
        session.committing = session.aligning = None
        self._model.rollback(session.slot, 0)  # an empty slot holds no memory where it is not reserved
        self._slots.give_back(session.slot)

    def submit(self, session_id: str, message: ToTarget, received_ns: int | None = None) -> None:
        """Take in a message; what is wrong with it ends its own session and no other.

        Parameters
        ----------
        received_ns : when it came, if that was earlier than now, as its clock tells.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.hear(message)
                case Candidates():
                    now_ns = self._clock()
                    if (answer := session.offer(message, received_ns or now_ns, now_ns)) is not None:
                        self._reply(session, answer)
                case Resume():
                    session.resume(message, self._model.vocabulary, self._model.num_mel_bins)
        except Exception as error:
            self._fail(session, error)

    def step(self) -> list[tuple[str, FromTarget]]:
        """Run one pass, unless it is put off, over all that have something to do; give all answers.

        Answers that need no pass do not wait for one: they are given first, but never twice in a row, so that
        nobody who sends without end keeps the others from their pass.
        """
        # Who has waited longest since its last window is encoded first.
        for session in sorted(self._sessions.values(), key=lambda session: session.opened_ns):
            try:
                self._advance(session)
            except Exception as error:
                self._fail(session, error)
            if self._is_overdue(session):
                session.go_alone(self._clock())
        self._answers_first = bool(self._outbox) and not self._answers_first
        runnable = [session for session in self._sessions.values() if session.is_runnable]
        if runnable and not self._answers_first and not self._puts_off_ns:
            self._run_forward(self._choose(runnable))
        events, self._outbox = self._outbox, []
        return events

    def _choose(self, runnable: list[VerifierState]) -> dict[VerifierState, int]:
        """Give the sessions of the next pass, and how many candidates each may have verified."""
        requests = [
            session.request(self._model.length(session.slot), self._max_width) for session in runnable
        ]
        parts = next_batch(requests, self._max_num_batched_tokens)
        for session in runnable:
            session.num_missed += 1
        chosen = {runnable[part.index]: part.num_candidates for part in parts}
        for session in chosen:
            session.num_missed = 0
        return chosen

    def _run_forward(self, batch: Mapping[VerifierState, int]) -> None:
        """Collect, forward, accept, roll back, reply; if that fails, half by half, so that one alone ends."""
        started_ns = self._clock()
        held = [self._model.length(session.slot) for session in batch]
        rows = [
            session.row(length, num_candidates, self._model.vocabulary)
            for (session, num_candidates), length in zip(batch.items(), held, strict=True)
        ]
        try:
            scores = self._model.score(rows)
        except Exception as error:
            if len(batch) == 1 or is_device_fault(error):
                self._fail(next(iter(batch)), error)
                return
            logger.warning("pass repeated", extra={"sessions": len(batch), "error": str(error)})
            scores = None
        if scores is None:  # here, and not above: an error keeps all that its pass had allocated
            for session, length in zip(batch, held, strict=True):
                self._model.rollback(session.slot, length)
            parts = list(batch.items())
            self._run_forward(dict(parts[: len(parts) // 2]))
            self._run_forward(dict(parts[len(parts) // 2 :]))
            return
        forward_ns = self._clock() - started_ns
        self._last_forward_ns = started_ns + forward_ns
        self._batching_delay.observe(forward_ns)
        for session, row, score in zip(batch, rows, scores, strict=True):
            timing = Timing(started_ns - session.ready_ns, forward_ns, session.encode_ns, len(batch))
            self._answer_time.observe(timing.queue_ns + forward_ns, len(self._sessions))
            try:
                session.committing = self._commit(session, row, score, timing)
                self._go_on(session)
            except Exception as error:
                self._fail(session, error)

    def _go_on(self, session: VerifierState) -> None:
        """Carry a session's commit on, to the end or until it waits for the executor."""
        session.aligning = None
        for aligning in session.committing or ():
            if not aligning.done():
                session.aligning = aligning
                aligning.add_done_callback(lambda _: self._wake())
                return
        session.committing = None

    def _commit(self, session: VerifierState, row: Row, scores: Scores, timing: Timing) -> Waiting[None]:
        """Append what the target chose, forget the rejected keys and values, and answer the draft.

        Yields what it waits for at the end of a window; the session does nothing else meanwhile.
        """
        if session.detects_language and scores.heard is not None:
            session.detect_language(scores.heard, timing.forward_ns)
            self._model.rollback(session.slot, 0)
            return
        window, base = session.open_window, len(session.ledger.committed)
        verdict = accept(
            row.candidates,
            scores.tokens,
            ends=self._model.vocabulary.ends,
            budget=window.max_new_tokens - base,
        )
        self._model.rollback(session.slot, len(window.prompt) + base + verdict.num_accepted)
        alignments = Alignments(self._model, self._aligner, self._clock)
        attended_ms = yield from alignments.attended_ms(session, verdict)
        commit = session.append(
            verdict,
            scores,
            timing,
            num_verified=row.num_candidates,
            now_ns=self._clock(),
            attended_ms=attended_ms,
        )
        words = yield from alignments.words(session, window, commit)
        if alignments.num_forwards:
            timing = replace(commit.timing, align_ns=alignments.align_ns)
            commit = replace(commit, words=words, num_align_forwards=alignments.num_forwards, timing=timing)
        if session.window is None and session.windows.language is None:
            self._model.rollback(session.slot, 0)  # it may be asked at once what language the slot is in
        self._reply(session, commit)

    def _can_advance(self, session: VerifierState) -> bool:
        """Tell whether a session goes on without a pass.

        A window of live audio is opened only when it can be encoded: by then it reaches further.
        """
        is_awaited = session.aligning is not None or session.encoding is not None
        if not session.can_advance or is_awaited or not session.windows.is_live:
            return session.can_advance
        return self._encodings.num_unfinished < self._model.max_windows

    def _advance(self, session: VerifierState) -> None:
        """Note a finished alignment or encoding, open the next window, or finish."""
        if not self._can_advance(session):
            return
        if session.aligning is not None:
            self._go_on(session)
            return
        if session.encoding is not None:
            session.encode_ns = session.encoding.result()
            session.encoding = None
            session.ready_ns = self._clock()
            return
        start_frame, num_frames = session.windows.next_frame, session.ready_frames
        if not num_frames:
            session.is_finished = True
            self._reply(session, Finished())
            return
        if session.windows.language is None:
            session.language_of = (start_frame, num_frames)
            self._encode(session, start_frame, num_frames)
            return
        window = session.begin_window(num_frames)
        session.opened_ns = self._clock()
        # Another replica cannot compute the log-mel maximum: it depends on earlier audio.
        log_mel_max = session.recording.log_mel_max(window.start_frame, self._model.num_mel_bins)
        # It may be heard already: for its language, by a try that failed, or in a pause that was the end.
        if session.encoded == (start_frame, num_frames):
            self._model.rollback(session.slot, 0)
            session.ready_ns = self._clock()
        else:
            self._encode(session, start_frame, num_frames)
        windows = session.windows
        previous = tuple(windows.previous) if session.options.condition_on_previous_text else ()
        self._reply(
            session, WindowOpened(window, log_mel_max, session.ledger.reused, windows.num_final, previous)
        )
        for answer in session.take_early(self._clock()):
            self._reply(session, answer)

    def _encode(self, session: VerifierState, start_frame: int, num_frames: int) -> None:
        """Have a window encoded into the session's slot, on the executor."""
        before = self._last_encodings.get(session.slot)

        def encode() -> int:
            if before is not None:
                wait([before])  # a session that left may be writing there still
            if self._sessions.get(session.id) is not session:
                return 0
            started_ns = self._clock()
            if session.windows.is_live:
                self._model.encode(session.slot, session.recording.clip(start_frame, num_frames), 0)
            else:
                self._model.encode(session.slot, session.recording, start_frame)
            return self._clock() - started_ns

        session.encoded = (start_frame, num_frames)
        session.encoding = self._last_encodings[session.slot] = self._executor.submit(encode)
        self._encodings.add(session.encoding)
        session.encoding.add_done_callback(lambda _: self._wake())

    def _fail(self, session: VerifierState, error: Exception) -> None:
        """End a session by an error; :class:`DeviceFault` where it is everybody's."""
        if is_device_fault(error):
            raise DeviceFault(f"The target's device has failed: {error}") from error
        if is_out_of_memory(error):
            logger.error("out of memory", extra={"session": session.id, "error": str(error)})
            error = OutOfMemory("The target has no memory for this session: go on elsewhere, or later.")
        self._reply(session, Failed(error))
        self.close(session.id)

    def _reply(self, session: VerifierState, event: FromTarget) -> None:
        self._outbox.append((session.id, event))
