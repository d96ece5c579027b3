"""The draft's engine: drafts for many sessions and follows their targets.

Like the target's engine it owns no thread or socket. One process calls it directly; the draft server runs it
in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.engine.draft_session import Drafted, DraftSession
from specwhisper.engine.encodings import AudioSpan, Encodings, InlineExecutor
from specwhisper.engine.live_draft import LiveDraft
from specwhisper.errors import DeviceFault
from specwhisper.model.backend import is_device_fault
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model, run_forward
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.batching import FreeSlots
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.live_windows import follow_windows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import Windows
from specwhisper.types import AudioChunk, Commit, Failed, Window, WindowOpened


class Drafter:
    """Extends each session's belief token by token and cuts it into blocks.

    A step drafts several tokens where it repeats what it drafted before a correction.

    Parameters
    ----------
    executor : runs encodings, begun in order; by default at once, in the caller's thread.
    clock : returns the time in nanoseconds, from any origin.
    wake : called, from any thread, when an encoding is done and :meth:`step` has work.
    follow : returns windows that follow those of the target.
    """

    wake_after_s = 0.0  # no draft step waits for a time

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor | None = None,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        follow: Callable[[Vocabulary, DecodingOptions], Windows] = follow_windows,
    ) -> None:
        self._model = model
        self._clock = clock
        self._follow = follow
        self._slots = FreeSlots(model.num_slots, "The draft server")
        self._encodings = Encodings(executor or InlineExecutor(), wake)
        self._sessions: dict[str, DraftSession] = {}
        self._failures: list[tuple[str, Failed]] = []
        self._likely_language = self._only_language()  # the last session's, for the next one

    def _only_language(self) -> str | None:
        """Return the model's language if it knows only one, in the target's vocabulary."""
        vocabulary, options = self._model.vocabulary, DecodingOptions(timestamps=False)
        known = (
            code
            for code in vocabulary.languages
            if self._model.can_continue(vocabulary.prompt(options, code))
        )
        first = next(known, None)
        return first if next(known, None) is None else None

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened; thread-safe."""
        return self._slots.num_free

    @property
    def has_work(self) -> bool:
        return bool(self._failures) or any(session.has_work for session in self._sessions.values())

    def open(
        self, session_id: str, length: DraftLength, options: DecodingOptions, *, max_ahead_tokens: int
    ) -> None:
        """Open a session; raise :class:`ServerFull` if no slot is free."""
        windows = self._follow(self._model.vocabulary, options)
        kind: type[DraftSession] = DraftSession
        if options.live is not None:
            kind, options = (
                LiveDraft,
                replace(options, timestamps=False),
            )  # hypotheses without times differ less
        self._sessions[session_id] = kind(
            length=length,
            options=options,
            recording=Recording(options.log_mel_max, options.padding),
            windows=windows,
            vocabulary=self._model.vocabulary,
            max_positions=self._model.max_positions,
            slot=self._slots.take(),
            max_ahead_tokens=max_ahead_tokens,
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; without effect if it has ended already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.encoding is not None:
            session.encoding.cancel()
        self._model.rollback(session.slot, 0)  # frees the memory of models without reserved slots
        self._slots.give_back(session.slot)

    def report(self, session_id: str) -> DraftReport:
        """Return a session's work since its last report; nothing if it has ended."""
        session = self._sessions.get(session_id)
        return DraftReport() if session is None else session.take_report()

    def submit(self, session_id: str, message: AudioChunk | WindowOpened | Commit) -> None:
        """Take audio or a message of the target; an error ends this draft only."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.recording.append(message)
                    session.windows.append_audio(message, session.recording.received_samples)
                case WindowOpened() if isinstance(session, LiveDraft):
                    self._note_language(message.window)
                    session.on_window_opened(message)
                case WindowOpened():
                    session.windows.on_window_opened(message.window)
                    self._on_window_opened(session, message)
                case Commit() if isinstance(session, LiveDraft):
                    session.on_commit(message)
                case Commit():
                    self._on_commit(session, message)
                    session.windows.on_commit(message)
            session.recording.discard_before(session.windows.needed_from)
            self._begin_next(session)
        except Exception as error:
            self._fail(session_id, error)

    def step(self) -> list[tuple[str, Drafted | Failed]]:
        """Draft a step for every session that may, and return the blocks that are due."""
        rows: dict[str, Row] = {}
        for session_id, session in list(self._sessions.items()):
            try:
                if session.can_draft():
                    rows[session_id] = self._row(session)
            except Exception as error:
                self._fail(session_id, error)
        if rows:
            self._run_forward(rows)
        drafted = []
        for session_id, session in self._sessions.items():
            if session.belief is not None and session.block_is_due():
                block = session.belief.cut_block(session.block_tokens(session.belief), self._clock())
                session.newest_block = block.window_id, block.block_number
                drafted.append((session_id, Drafted(block, session.take_report())))
            drafted += [(session_id, each) for each in session.take_drafted()]
        failures, self._failures = self._failures, []
        return [*drafted, *failures]

    def _row(self, session: DraftSession) -> Row:
        belief = session.belief
        if belief is None or session.encoding is None:
            raise RuntimeError("A session without a window cannot draft.")
        session.encoding.result()  # raises the encoding's error
        sequence = [*belief.window.prompt, *belief.tokens]
        candidates = session.stale_tokens(belief)
        return Row(
            slot=session.slot,
            tokens=[*sequence[self._model.length(session.slot) :], *candidates],
            num_candidates=len(candidates),
            generated=belief.tokens,
            timestamps=session.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(session.options),
            sampling=window_sampling(belief.window, session.options),
        )

    def _run_forward(self, rows: Mapping[str, Row]) -> None:
        session_ids = {row.slot: session_id for session_id, row in rows.items()}
        passes = run_forward(
            self._model,
            list(rows.values()),
            clock=self._clock,
            on_error=lambda row, error: self._fail(session_ids[row.slot], error),
        )
        for each in passes:
            for row, score in zip(each.rows, each.scores, strict=True):
                session_id = session_ids[row.slot]
                session = self._sessions[session_id]
                self._extend(session, row, score)
                session.observe_step(each.forward_ns, is_plain=not row.num_candidates)
                try:
                    self._begin_next(session)
                except Exception as error:
                    self._fail(session_id, error)

    def _extend(self, session: DraftSession, row: Row, scores: Scores) -> None:
        """Append the tokens of a draft step to the belief."""
        belief = session.belief
        if belief is None:
            raise RuntimeError("A session without a window has drafted.")
        ends, budget = session.vocabulary.ends, len(scores.tokens)
        verdict = accept(row.candidates, scores.tokens, ends=ends, budget=budget)
        for index, token in enumerate(verdict.tokens):
            if not index or session.can_draft():
                belief.extend(token, scores.log_probs[index])
        if row.num_candidates:
            self._model.rollback(session.slot, len(belief.window.prompt) + len(belief.tokens) - 1)

    def _fail(self, session_id: str, error: Exception) -> None:
        """End a session's draft by an error; raise one that ends all of them."""
        if is_device_fault(error):
            raise DeviceFault(f"The draft's device has failed: {error}") from error
        self._failures.append((session_id, Failed(error)))
        self.close(session_id)

    def _on_window_opened(self, session: DraftSession, opened: WindowOpened) -> None:
        """Begin with an opened window; keep its draft if it was predicted."""
        window = opened.window
        self._note_language(window)
        belief = session.belief
        if belief is not None and belief.predicts(window) and not opened.opening:
            belief.window, belief.is_predicted = window, False
        else:
            self._begin(session, window, opened.opening)

    def _note_language(self, window: Window) -> None:
        self._likely_language = self._model.vocabulary.prompt_language(window.prompt) or self._likely_language

    def _begin_next(self, session: DraftSession) -> None:
        """Begin with what the session drafts next: a hypothesis, or a predicted first window."""
        if not isinstance(session, LiveDraft):
            self._predict_first(session)
            return
        session.end_hypothesis()
        window = session.next_window()
        if window is not None and session.note_language(is_known=self._model.can_continue(window.prompt)):
            self._begin(session, window, ())
            session.begin_hypothesis()

    def _predict_first(self, session: DraftSession) -> None:
        """Begin with the first window before the target opens it: while the audio is on its way."""
        is_begun = session.recording.first_sample > 0  # by another session, or its beginning is not needed
        if session.belief is not None or is_begun:
            return
        window = session.windows.predict_first(self._likely_language, session.recording)
        if window is not None:
            self._begin(session, window, (), is_predicted=True)

    def _begin(
        self, session: DraftSession, window: Window, opening: Sequence[int], *, is_predicted: bool = False
    ) -> None:
        """Begin with a window, and encode it unless its audio is in the slot."""
        window_id, num_blocks = session.newest_block
        session.belief = Belief(
            window,
            credit=session.max_ahead_tokens,
            num_blocks=num_blocks if window_id == window.id else 0,
            opening=opening,
            is_predicted=is_predicted,
            word_of=session.vocabulary.word_of,
        )
        session.is_known = self._model.can_continue(window.prompt)
        span = AudioSpan(window.start_frame, window.num_frames)
        if session.encoded == span:  # a further attempt
            if session.is_ready:
                self._model.rollback(session.slot, 0)
            return
        if session.encoding is not None:
            session.encoding.cancel()
        audio, start_frame = session.recording, window.start_frame
        if session.windows.is_clip:
            audio, start_frame = audio.clip(*span, is_cut=session.options.live is not None), 0
        session.encoded = span
        encode = partial(self._model.encode, session.slot, audio, start_frame)
        is_live = session.options.live is not None
        session.encoding = self._encodings.submit(session.slot, encode, is_live=is_live)

    def _on_commit(self, session: DraftSession, commit: Commit) -> None:
        """Apply a commit: keep what agrees with it, roll back the rest."""
        belief = session.belief
        if belief is None or commit.window_id != belief.window.id:
            return
        judgement = belief.apply_commit(commit, lost_all=session.target_gave_up_waiting(commit))
        session.observe_commit(commit, judgement, self._clock())
        if session.is_ready:  # before that, the encoder's thread uses the slot, and it is empty
            self._model.rollback(session.slot, len(belief.window.prompt) + judgement.agreed)
        if commit.is_final:
            session.belief = None
