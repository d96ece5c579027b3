"""The target's engine: transcribes many sessions in shared forward passes.

It owns no thread, socket or timer: :meth:`Verifier.submit` takes messages, :meth:`Verifier.step` runs one
forward pass and returns the answers. One process calls it directly; the target server runs it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.audio.trimming import trimmed
from specwhisper.engine.encodings import AudioSpan, Encodings, InlineExecutor
from specwhisper.engine.target_session import LastCommit, TargetSession
from specwhisper.errors import DeviceFault, OutOfMemory, ServerFull, UnsupportedOption
from specwhisper.live import LivePosition
from specwhisper.model.backend import is_device_fault, is_out_of_memory
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model, run_forward
from specwhisper.options import DecodingOptions, WordTimes
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.batching import BatchTime, FreeSlots, Request, ResponseTime, next_batch
from specwhisper.transcription.hints import HintBuilder
from specwhisper.transcription.live_windows import whisper_plan
from specwhisper.transcription.windows import Plan
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    Commit,
    ConfirmEvery,
    Failed,
    Finished,
    FromTarget,
    Limits,
    Mode,
    Resume,
    TimedHint,
    Timing,
    ToTarget,
    Window,
    WindowOpened,
)

logger = logging.getLogger(__name__)

CANDIDATES_TIMEOUT_NS = 5_000_000_000  # then the target decodes one token by itself: blocks may be lost


class Verifier:
    """Verifies candidates, and decodes by itself where there are none.

    It does not check token ids: check those from a network against the vocabulary first.

    Parameters
    ----------
    executor : runs encodings, begun in order; by default at once, in the caller's thread.
    aligner : aligns words; by default ``executor`` does it too.
    clock : returns the time in nanoseconds, from any origin.
    wake : called, from any thread, when the executors are done and :meth:`step` has work.
    max_width : most draft tokens of a session in a forward pass; a hint may add ``MAX_REACH``.
    max_num_batched_tokens : most tokens in a forward pass (:func:`speculation.batching.next_batch`).
    latency_budget_ms : sessions are refused while the mean response time would exceed it.
    plan : returns the windows of a session; by default Whisper's, sequential or live.
    """

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor | None = None,
        aligner: Executor | None = None,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        max_width: int = DEFAULT_MAX_WIDTH,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        latency_budget_ms: float | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        executor = executor or InlineExecutor()
        self._aligner = aligner or executor
        self._clock = clock
        self._wake = wake
        self._max_width = max_width
        self._max_num_batched_tokens = max_num_batched_tokens
        self._response_time = ResponseTime(latency_budget_ms)
        self._batch_time = BatchTime()
        self._hints = HintBuilder(model.vocabulary, model.tokenize)
        self._plan = plan or whisper_plan(model.vocabulary, model.tokenize)
        self._slots = FreeSlots(model.num_slots, "The target")
        self._encodings = Encodings(executor, wake)
        self._sessions: dict[str, TargetSession] = {}
        self._outbox: list[tuple[str, FromTarget]] = []
        self._last_step_only_answered = False

    @property
    def num_free_slots(self) -> int:
        return self._slots.num_free

    @property
    def num_slots(self) -> int:
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
        now_ns = self._clock()
        return bool(self._outbox) or any(
            session.is_runnable or self._can_advance(session) or self._has_timed_out(session, now_ns)
            for session in self._sessions.values()
        )

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
    def _has_timed_out(session: TargetSession, now_ns: int) -> bool:
        return session.awaits_candidates and now_ns - session.ready_ns >= CANDIDATES_TIMEOUT_NS

    def check_room(self) -> int:
        """Return the number of free slots; raise ``ServerFull`` if one more session does not fit."""
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
        UnsupportedOption
            if this model lacks an option.
        """
        self.check_room()
        windows, recording = self._plan(options), Recording(options.log_mel_max, options.padding)
        if options.word_timestamps and not self._model.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: leave word_timestamps out.")
        self._sessions[session_id] = TargetSession(
            id=session_id,
            slot=self._slots.take(),  # last, so that an error takes no slot
            mode=mode,
            options=options,
            limits=self.limits,
            recording=recording,
            windows=windows,
            hints=self._hints.of_session(mode, options, lambda: self._batch_time.token_share),
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; without effect if it has ended already.

        An alignment that still runs does not use the slot. An encoding may still write into it: the next
        session's encoding waits for that.
        """
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if (work := session.aligning or session.encoding) is not None:
            work.cancel()
        self._model.rollback(session.slot, 0)  # frees the memory of models without reserved slots
        self._slots.give_back(session.slot)

    def submit(
        self, session_id: str, message: ToTarget | LivePosition, received_ns: int | None = None
    ) -> None:
        """Take a message; an error in it ends its session only.

        ``received_ns``: when it arrived, by the engine's clock; by default now.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return
        now_ns = self._clock()
        received_ns, was_waiting = received_ns or now_ns, session.awaits_candidates
        try:
            match message:
                case AudioChunk():
                    session.add_audio(message)
                case Candidates():
                    if (answer := session.offer_block(message, received_ns, now_ns)) is not None:
                        self._reply(session, answer)
                case TimedHint():
                    session.add_timed_hint(message, self._hints.live)
                case ConfirmEvery():
                    session.windows.confirm_every(message.interval_ms)
                case LivePosition():
                    session.resume_live(message)
                case Resume():
                    session.resume_window(message, self._model.vocabulary, self._model.num_mel_bins)
            session.update_phase()
            if was_waiting and session.is_runnable:
                session.ready_ns = received_ns
        except Exception as error:
            self._fail(session, error)

    def step(self) -> list[tuple[str, FromTarget]]:
        """Advance all sessions, run at most one forward pass, and return all answers.

        Answers that need no forward pass are returned at once, without one; but not in two steps in a row, so
        that a client with many messages cannot stop the forward passes.
        """
        # The session that has waited longest since its last window is encoded first.
        ready = filter(self._can_advance, self._sessions.values())
        for session in sorted(ready, key=lambda session: (session.windows.may_wait, session.opened_ns)):
            try:
                if self._can_advance(session):  # still, after the ones before
                    self._advance(session)
            except Exception as error:
                self._fail(session, error)
        now_ns = self._clock()
        for session in self._sessions.values():
            if self._has_timed_out(session, now_ns):
                # The wait does not count as response time of the target.
                session.may_self_decode, session.ready_ns = True, now_ns
                session.update_phase()
        self._last_step_only_answered = bool(self._outbox) and not self._last_step_only_answered
        if not self._last_step_only_answered and (rows := self._next_rows()):
            self._run_forward(rows)
        events, self._outbox = self._outbox, []
        return events

    def _can_advance(self, session: TargetSession) -> bool:
        """Return whether a session can leave its phase without a forward pass.

        A live window is opened only when it is the next to be encoded: later it reaches further.
        """
        work = session.aligning or session.encoding
        if work is not None:
            return work.done()
        if not session.can_open or not session.windows.is_live:
            return session.can_open
        return self._encodings.num_live < self._model.max_windows

    def _advance(self, session: TargetSession) -> None:
        """Let a session leave its phase: the executor is done, or audio has arrived."""
        if session.aligning is not None:
            self._complete_window(session, session.aligning.result())
        elif session.encoding is not None:
            session.encode_ns = session.encoding.result()
            session.encoding, session.ready_ns = None, self._clock()
        else:
            self._open_next(session)
        session.update_phase()

    def _open_next(self, session: TargetSession) -> None:
        """Open the next window, find its speech or its language first, or finish."""
        windows, num_frames = session.windows, session.ready_frames
        if not num_frames:
            session.is_finished = True
            self._reply(session, Finished())
        elif windows.needs_speech:
            self._find_speech(session, AudioSpan(windows.next_frame, num_frames))
        elif detected_in := windows.language_span(num_frames):
            self._encode(session, AudioSpan(*detected_in))
        else:
            self._open_window(session, num_frames)

    def _open_window(self, session: TargetSession, num_frames: int) -> None:
        """Open the next window, and let it take the blocks that came early."""
        window = session.begin_window(num_frames, self._clock())
        span = AudioSpan(window.start_frame, window.num_frames)  # the same for one that is resumed
        # Another replica cannot compute the log-mel maximum: it depends on earlier audio.
        log_mel_max = session.recording.log_mel_max(window.start_frame, self._model.num_mel_bins)
        # The slot may hold this audio: from the detection, a failed attempt, or a pause that was the end.
        if session.encoded == span:
            self._model.rollback(session.slot, 0)
            session.ready_ns = self._clock()
        else:
            self._encode(session, span)
        previous = tuple(session.windows.previous) if session.options.condition_on_previous_text else ()
        language_probs, session.language_probs = session.language_probs, {}
        self._reply(
            session, WindowOpened(window, log_mel_max, session.ledger.opening, previous, language_probs)
        )
        session.update_phase()
        early_blocks, session.early_blocks = session.early_blocks, []
        for block, received_ns in early_blocks:
            self.submit(session.id, block, received_ns)

    def _find_speech(self, session: TargetSession, span: AudioSpan) -> None:
        """Let the windows listen to the next one, on the executor."""

        def find_speech() -> int:
            session.windows.find_speech(session.recording.pcm(*span), span.num_frames)
            return 0

        session.encoded, session.encoding = None, self._encodings.submit(session.slot, find_speech)

    def _encode(self, session: TargetSession, span: AudioSpan) -> None:
        """Queue the encoding of audio into the session's slot; it returns its time in ns."""

        def encode() -> int:
            started_ns = self._clock()
            if session.windows.is_clip:
                self._model.encode(session.slot, session.recording.clip(*span), 0)
            else:
                self._model.encode(session.slot, session.recording, span.start_frame)
            return self._clock() - started_ns

        is_live = session.windows.is_live
        session.encoded = span
        session.encoding = self._encodings.submit(session.slot, encode, is_live=is_live)

    def _next_rows(self) -> list[Row]:
        """Return the rows of the next forward pass: one for each session that takes part."""
        runnable = [session for session in self._sessions.values() if session.is_runnable]
        rows = [
            session.next_row(self._model.length(session.slot), self._max_width, self._model.vocabulary)
            for session in runnable
        ]
        requests = [
            Request(len(row.tokens) - row.num_candidates, row.num_candidates, session.num_missed)
            for row, session in zip(rows, runnable, strict=True)
        ]
        parts = next_batch(requests, self._max_num_batched_tokens)
        for session in runnable:
            session.num_missed += 1
        for index in parts:
            runnable[index].num_missed = 0
        return [rows[index].with_candidates(num_candidates) for index, num_candidates in parts.items()]

    def _run_forward(self, rows: Sequence[Row]) -> None:
        sessions = {session.slot: session for session in self._sessions.values()}
        passes = run_forward(
            self._model,
            rows,
            clock=self._clock,
            on_error=lambda row, error: self._fail(sessions[row.slot], error),
        )
        for passed, scores, started_ns, forward_ns in passes:
            self._batch_time.observe(len(passed), sum(len(row.tokens) for row in passed), forward_ns)
            now_ns, num_sessions = self._clock(), len(self._sessions)
            token_ns = round(self._batch_time.token_ns)
            for row, score in zip(passed, scores, strict=True):
                session = sessions[row.slot]
                queue_ns, block_age_ns = started_ns - session.ready_ns, session.block_age_ns(now_ns)
                self._response_time.observe(queue_ns + forward_ns, num_sessions)
                timing = Timing(
                    queue_ns, forward_ns, session.encode_ns, len(passed), block_age_ns, token_ns=token_ns
                )
                try:
                    self._accept_row(session, row, score, timing, now_ns)
                    session.update_phase()
                except Exception as error:
                    self._fail(session, error)
            for session in self._sessions.values():
                if session.awaits_candidates:  # a hint may be worth its time now
                    session.update_phase()

    def _accept_row(
        self, session: TargetSession, row: Row, scores: Scores, timing: Timing, now_ns: int
    ) -> None:
        """Commit what is accepted, and roll back the rest; reply, unless words are to be aligned first."""
        window, base = session.window, len(session.ledger.committed)
        if window is None:
            if scores.probe_result is not None:
                session.add_language(scores.probe_result, timing.forward_ns)
            self._model.rollback(session.slot, 0)
            return
        verdict = accept(
            row.candidates,
            scores.tokens,
            ends=self._model.vocabulary.ends | session.windows.stops,
            budget=window.max_new_tokens - base,
        )
        self._model.rollback(session.slot, len(window.prompt) + base + verdict.num_accepted)
        commit = session.commit_tokens(verdict, scores, row.num_candidates, timing, now_ns)
        if not verdict.is_final:
            self._reply(session, commit)
        elif span := session.words_span(window):
            self._align(session, window, commit, span)
        else:
            self._complete_window(session, LastCommit(window, commit))

    def _align(self, session: TargetSession, window: Window, commit: Commit, span: range) -> None:
        """Find when the words of these tokens are spoken, before a window's last commit is sent.

        It takes one more forward pass in this thread, which commits nothing and is counted apart. The slower
        rest runs on the executor.
        """
        started_ns = self._clock()
        num_frames = min(window.num_frames, session.recording.audio_frames - window.start_frame)
        finish = self._model.align(session.slot, window, session.ledger.committed, num_frames)
        is_trimmed = session.options.word_times is WordTimes.SOUND
        pcm = session.recording.pcm(window.start_frame, num_frames) if is_trimmed else b""
        begun_ns = self._clock() - started_ns

        def align() -> LastCommit:
            started_ns = self._clock()
            words = finish()
            timed = trimmed(words, pcm, window.start_sample) if is_trimmed else words
            align_ns = begun_ns + self._clock() - started_ns
            words, timed = (tuple(word for word in each if word.base in span) for each in (words, timed))
            timing = replace(commit.timing, align_ns=align_ns)
            return LastCommit(window, replace(commit, num_align_forwards=1, timing=timing), words, timed)

        session.aligning = self._aligner.submit(align)
        if session.aligning.done():
            self._complete_window(session, session.aligning.result())
        else:
            session.aligning.add_done_callback(lambda _: self._wake())

    def _complete_window(self, session: TargetSession, last: LastCommit) -> None:
        session.aligning = None
        commit = session.review_window(last)
        if session.windows.language is None:
            self._model.rollback(session.slot, 0)  # the language may be detected in the slot next
        self._reply(session, commit)

    def _fail(self, session: TargetSession, error: Exception) -> None:
        """End a session by an error; raise :class:`DeviceFault` if it ends all sessions."""
        if is_device_fault(error):
            raise DeviceFault(f"The target's device has failed: {error}") from error
        if is_out_of_memory(error):
            logger.error("out of memory", extra={"session": session.id, "error": str(error)})
            error = OutOfMemory("The target has no memory for this session: resume elsewhere, or later.")
        self._reply(session, Failed(error))
        self.close(session.id)

    def _reply(self, session: TargetSession, event: FromTarget) -> None:
        self._outbox.append((session.id, event))
