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
from typing import Any

from specwhisper.audio.recording import Recording
from specwhisper.engine.draft_state import NO_REPORT, Drafted, DraftState
from specwhisper.engine.encodings import AudioSpan, Encodings
from specwhisper.engine.live_draft import LiveDraft
from specwhisper.engine.window_draft import WindowDraft
from specwhisper.errors import DeviceFault
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.faults import is_device_fault
from specwhisper.model.forward import run_forward
from specwhisper.model.model import Model
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.admission import FreeSlots
from specwhisper.speculation.draft_length import BlockSize, DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.live.windows import follow_windows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import Windows
from specwhisper.types import AudioChunk, Commit, Failed, Window, WindowOpened


class Drafter:
    """Extends each session's belief token by token and cuts it into blocks.

    A step drafts several tokens where it repeats what it drafted before a correction.

    Parameters
    ----------
    executor : runs encodings, and begins them in order.
    clock : returns the time in nanoseconds, from any origin.
    wake : called, from any thread, when an encoding is done and :meth:`step` has work.
    follow : returns windows that follow those of the target.
    """

    wake_after_s = 0.0  # no draft step waits for a time

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        follow: Callable[[Vocabulary, DecodingOptions], Windows] = follow_windows,
    ) -> None:
        self._model = model
        self._clock = clock
        self._follow = follow
        self._slots = FreeSlots(model.num_slots, "The draft server")
        self._encodings = Encodings(executor, wake)
        self._sessions: dict[str, DraftState] = {}
        self._failures: list[tuple[str, Failed]] = []
        self._likely_language = self._only_language()  # of the next session: the last one's

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
        """Whether :meth:`step` would do anything now."""
        return bool(self._failures) or any(session.has_work for session in self._sessions.values())

    def open(
        self, session_id: str, length: DraftLength, options: DecodingOptions, *, max_ahead_tokens: int
    ) -> None:
        """Open a session; raise :class:`ServerFull` if no slot is free."""
        recording = Recording(options.log_mel_max, options.padding)
        vocabulary = self._model.vocabulary
        common: dict[str, Any] = {
            "length": length,
            "block_size": BlockSize(length),
            "options": options,
            "recording": recording,
            "windows": self._follow(vocabulary, options),
            "ends": vocabulary.ends,
            "max_positions": self._model.max_positions,
            "word_of": vocabulary.word_of,
            "current": WindowDraft(self._slots.take(), max_ahead_tokens),
        }
        if options.live is None:
            self._sessions[session_id] = DraftState(**common)
        else:  # without times, hypotheses differ less
            common["options"] = replace(options, timestamps=False)
            self._sessions[session_id] = LiveDraft(**common, vocabulary=vocabulary)

    def close(self, session_id: str) -> None:
        """End a session and free its slot; without effect if it has ended already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        draft = session.current
        if draft.encoding is not None:
            draft.encoding.cancel()
        self._model.rollback(draft.slot, 0)  # frees the memory of models without reserved slots
        self._slots.give_back(draft.slot)

    def report(self, session_id: str) -> DraftReport:
        """Return a session's work since its last report; nothing if it has ended."""
        session = self._sessions.get(session_id)
        return NO_REPORT if session is None else session.take_report()

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
            if session.block_is_due():
                block = session.current.take_block(session.block_tokens(), self._clock())
                session.newest_block = block.window_id, block.block_number
                drafted.append((session_id, Drafted(block, session.take_report())))
            drafted += [(session_id, each) for each in session.take_drafted()]
        failures, self._failures = self._failures, []
        return [*drafted, *failures]

    def _row(self, session: DraftState) -> Row:
        draft = session.current
        if draft.window is None or draft.encoding is None:
            raise RuntimeError("A session without a window cannot draft.")
        draft.encoding.result()  # raises the encoding's error
        sequence = [*draft.window.prompt, *draft.belief.tokens]
        candidates = session.stale_tokens()
        return Row(
            slot=draft.slot,
            tokens=[*sequence[self._model.length(draft.slot) :], *candidates],
            num_candidates=len(candidates),
            generated=draft.belief.tokens,
            timestamps=session.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(session.options),
            sampling=window_sampling(draft.window, session.options),
        )

    def _run_forward(self, rows: Mapping[str, Row]) -> None:
        """Extend beliefs by the tokens of a draft step."""
        session_ids = {row.slot: session_id for session_id, row in rows.items()}

        def on_scores(
            rows: Sequence[Row], scores: Sequence[Scores], started_ns: int, forward_ns: int
        ) -> None:
            for row, score in zip(rows, scores, strict=True):
                session_id = session_ids[row.slot]
                session = self._sessions[session_id]
                draft = session.current
                belief = draft.belief
                verdict = accept(row.candidates, score.tokens, ends=session.ends, budget=len(score.tokens))
                for index in range(len(verdict.tokens)):
                    if not index or session.can_draft():
                        draft.extend(score, index)
                if row.num_candidates and draft.window is not None:
                    length = len(draft.window.prompt) + len(belief.tokens) - 1
                    self._model.rollback(draft.slot, length)
                session.observe_step(forward_ns, is_plain=not row.num_candidates)
                try:
                    self._begin_next(session)
                except Exception as error:
                    self._fail(session_id, error)

        run_forward(
            self._model,
            list(rows.values()),
            clock=self._clock,
            on_scores=on_scores,
            on_error=lambda row, error: self._fail(session_ids[row.slot], error),
        )

    def _fail(self, session_id: str, error: Exception) -> None:
        """End a session's draft by an error; raise one that ends all of them."""
        if is_device_fault(error):
            raise DeviceFault(f"The draft's device has failed: {error}") from error
        self._failures.append((session_id, Failed(error)))
        self.close(session_id)

    def _on_window_opened(self, session: DraftState, opened: WindowOpened) -> None:
        """Begin with an opened window; keep its draft if it was predicted."""
        window = opened.window
        self._note_language(window)
        draft = session.current
        if draft.is_predicted and draft.predicts(window) and not opened.opening:
            draft.window, draft.is_predicted = window, False
        else:
            self._begin(session, window, opened.opening)

    def _note_language(self, window: Window) -> None:
        self._likely_language = self._model.vocabulary.prompt_language(window.prompt) or self._likely_language

    def _begin_next(self, session: DraftState) -> None:
        """Begin with what the session drafts next: a hypothesis, or a predicted first window."""
        if not isinstance(session, LiveDraft):
            self._predict_first(session)
            return
        session.end_hypothesis()
        window = session.next_window()
        if window is not None and session.note_language(is_known=self._model.can_continue(window.prompt)):
            self._begin(session, window, ())
            session.begin_hypothesis()

    def _predict_first(self, session: DraftState) -> None:
        """Begin with the first window before the target opens it: while the audio is on its way."""
        is_begun = session.recording.first_sample > 0  # by another session, or its beginning is not needed
        if session.current.window is not None or is_begun or not session.length.mode.drafts:
            return
        window = session.windows.predict_first(self._likely_language, session.recording)
        if window is not None:
            self._begin(session, window, (), is_predicted=True)

    def _begin(
        self, session: DraftState, window: Window, opening: Sequence[int], *, is_predicted: bool = False
    ) -> None:
        """Begin with a window, and encode it unless its audio is in the slot."""
        draft, (window_id, num_blocks) = session.current, session.newest_block
        draft.begin(
            window,
            is_predicted=is_predicted,
            opening=opening,
            num_blocks=num_blocks if window_id == window.id else 0,
        )
        draft.is_known = self._model.can_continue(window.prompt)
        span = _span(window)
        if draft.encoded == span:  # a further attempt
            if draft.is_ready:
                self._model.rollback(draft.slot, 0)
            return
        if draft.encoding is not None:
            draft.encoding.cancel()
        audio, start_frame = session.recording, window.start_frame
        if session.windows.is_clip:
            audio, start_frame = audio.clip(*span, is_cut=session.options.live is not None), 0
        draft.encoded = span
        encode = partial(self._model.encode, draft.slot, audio, start_frame)
        is_live = session.options.live is not None
        draft.encoding = self._encodings.submit(draft.slot, encode, is_live=is_live)

    def _on_commit(self, session: DraftState, commit: Commit) -> None:
        """Apply a commit: keep what agrees with it, roll back the rest."""
        draft = session.current
        if draft.window is None or commit.window_id != draft.window.id:
            return
        session.observe_times(commit, self._clock())
        agreed = session.take_commit(commit)
        if draft.is_ready:  # before that, the encoder's thread uses the slot, and it is empty
            self._model.rollback(draft.slot, len(draft.window.prompt) + agreed)
        if commit.is_final:
            draft.window = None


def _span(window: Window) -> AudioSpan:
    return AudioSpan(window.start_frame, window.num_frames)
