"""The draft's engine: drafts for many sessions at once and follows what the target commits.

Like the target's engine it owns no thread or socket; one process calls it directly, the draft server runs it
in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from math import exp
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.engine.draft_state import NOTHING, Drafted, DraftState
from specwhisper.engine.encodings import Encodings
from specwhisper.engine.slots import Slots
from specwhisper.engine.window_draft import WindowDraft
from specwhisper.errors import DeviceFault
from specwhisper.model.choosing import Row
from specwhisper.model.faults import is_device_fault
from specwhisper.model.model import Model
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.controller import Controller
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.live_windows import follow_windows
from specwhisper.types import UNKNOWN_AGE_NS, AudioChunk, Commit, Failed, Window, WindowOpened


class Drafter:
    """Extends each session's belief token by token and cuts it into blocks.

    Parameters
    ----------
    executor : runs encodings, and begins them in order.
    clock : tells the time, in nanoseconds from any moment.
    wake : called, from any thread, when an encoding is done and :meth:`step` has something to do.
    runs_ahead : whether a window is drafted before the target opens it, in a second slot, while one is free.
    """

    wake_after_s = 0.0  # nobody gains if it waits

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
        runs_ahead: bool = False,
    ) -> None:
        self._model = model
        self._executor = executor
        self._clock = clock
        self._wake = wake
        self._runs_ahead = runs_ahead
        self._slots = Slots(model.num_slots, "The draft server")
        self._encodings = Encodings()
        self._unfinished: dict[int, list[Future[None]]] = {}  # encodings of each slot
        self._sessions: dict[str, DraftState] = {}
        self._failures: list[tuple[str, Failed]] = []

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened: what others only draft ahead in is free for them."""
        return self._slots.num_free + sum(session.ahead is not None for session in self._sessions.values())

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        return bool(self._failures) or any(
            session.has_paused
            or any(
                self._can_draft(session, draft) or self._block_is_due(session, draft)
                for draft in session.drafts
            )
            for session in self._sessions.values()
        )

    def open(
        self, session_id: str, length: DraftLength, options: DecodingOptions, *, max_ahead_tokens: int
    ) -> None:
        """Open a session; :class:`ServerFull` when every slot is taken."""
        recording = Recording(options.log_mel_max)
        if not self._slots.num_free:
            self._free_one_ahead()
        current = WindowDraft(self._slots.take(), max_ahead_tokens)
        self._sessions[session_id] = DraftState(
            length,
            Controller(length),
            options,
            recording,
            follow_windows(self._model.vocabulary, options),
            current,
        )

    def _free_one_ahead(self) -> None:
        """Take the slot of a window that is only expected; its next owner encodes behind it."""
        for session in self._sessions.values():
            if session.ahead is not None:
                self._give_back(session.ahead.slot)
                session.ahead = None
                return

    def close(self, session_id: str) -> None:
        """End a session and free its slots; of no effect when it is gone already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        for draft in (session.current, session.ahead):
            if draft is not None:
                if draft.encoding is not None:
                    draft.encoding.cancel()
                self._give_back(draft.slot)

    def _give_back(self, slot: int) -> None:
        self._model.rollback(slot, 0)  # an empty slot holds no memory where it is not reserved
        self._slots.give_back(slot)

    def report(self, session_id: str) -> DraftReport:
        """Give what a session's draft has not told yet; nothing when it is gone already."""
        session = self._sessions.get(session_id)
        return NOTHING if session is None else session.take_report()

    def submit(self, session_id: str, message: AudioChunk | WindowOpened | Commit) -> None:
        """Take in the session's audio and what its target says; what goes wrong ends this session's draft."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.recording.append(message)
                    session.windows.append_audio(message, session.recording.received_samples)
                case WindowOpened():
                    session.windows.on_window_opened(message.window)
                    self._begin(session, message)
                case Commit():
                    self._follow(session, message)
                    session.windows.on_commit(message)
            session.recording.discard_before(session.windows.needed_from)
            self._look_ahead(session)
        except Exception as error:
            self._fail(session_id, error)

    def step(self) -> list[tuple[str, Drafted | Failed]]:
        """Draft one token for every session that may, and give the blocks that are complete."""
        rows, drafts = {}, {}
        for session_id, session in list(self._sessions.items()):
            try:
                draft = next((draft for draft in session.drafts if self._can_draft(session, draft)), None)
                if draft is not None:
                    rows[session_id], drafts[session_id] = self._row(session, draft), draft
            except Exception as error:
                self._fail(session_id, error)
        if rows:
            self._draft(rows, drafts)
        drafted = []
        for session_id, session in self._sessions.items():
            for draft in session.drafts:
                if self._block_is_due(session, draft):
                    block = draft.take_block(session.controller.choice.gamma, self._clock())
                    session.num_blocks[block.window_id] = block.number
                    drafted.append((session_id, Drafted(block, session.take_report(), draft.believed)))
            if session.has_paused:
                drafted.append((session_id, Drafted(None, session.take_report())))
        failures, self._failures = self._failures, []
        return [*drafted, *failures]

    def _draft(self, rows: Mapping[str, Row], drafts: Mapping[str, WindowDraft]) -> None:
        """Extend beliefs by a token; if that fails, one by one, so that one alone ends."""
        started_ns = self._clock()
        held = [self._model.length(row.slot) for row in rows.values()]
        try:
            scores = self._model.score(list(rows.values()))
        except Exception as error:
            if len(rows) == 1 or is_device_fault(error):
                self._fail(next(iter(rows)), error)
                return
            scores = None
        if scores is None:  # here, and not above: an error keeps all that its pass had allocated
            for length, (session_id, row) in zip(held, rows.items(), strict=True):
                self._model.rollback(row.slot, length)
                self._draft({session_id: row}, drafts)
            return
        forward_ns = self._clock() - started_ns
        for session_id, score in zip(rows, scores, strict=True):
            session = self._sessions[session_id]
            belief = drafts[session_id].belief
            known_from = belief.num_committed if session.length.mode.is_lock_step else belief.run_start
            drafts[session_id].extend(score, distance_from=known_from)
            session.report += DraftReport(forward_ns=forward_ns)
            session.controller.observe_step(forward_ns)
            try:
                self._look_ahead(session)
            except Exception as error:
                self._fail(session_id, error)

    def _fail(self, session_id: str, error: Exception) -> None:
        """End a session's draft by an error; :class:`DeviceFault` where it ends all of them."""
        if is_device_fault(error):
            raise DeviceFault(f"The draft's device has failed: {error}") from error
        self._failures.append((session_id, Failed(error)))
        self.close(session_id)

    def _begin(self, session: DraftState, opened: WindowOpened) -> None:
        """Turn to a window that the target has opened; what was foreseen of it stands."""
        window = opened.window
        session.num_blocks = {
            number: sent for number, sent in session.num_blocks.items() if number >= window.id
        }
        ahead = session.ahead
        if ahead is not None and ahead.foresaw(window):
            session.current, session.ahead = ahead, session.current
            ahead.window, ahead.is_expected = window, False
            if tuple(ahead.belief.tokens[: len(opened.reused)]) != opened.reused:
                self._hear(session, ahead, window, opened.reused)
        else:
            self._hear(session, session.current, window, opened.reused)
        if session.ahead is not None:
            session.ahead.window = None

    def _look_ahead(self, session: DraftState) -> None:
        """Expect the window that will follow, in a slot of its own."""
        if not self._runs_ahead:
            return
        predicted = session.windows.predict_next(session.current.belief.tokens, session.recording)
        if predicted is None:
            return
        if session.options.live is not None and self._encodings.num_unfinished:
            return  # each window reaches further than the last: only who has the time draws level
        following, expected = predicted
        ahead = session.ahead
        if ahead is not None and ahead.window is not None:
            if (ahead.window.start_frame, ahead.window.num_frames) == (
                following.start_frame,
                following.num_frames,
            ):
                return
        if ahead is None and following.num_frames and self._slots.num_free:
            ahead = session.ahead = WindowDraft(self._slots.take(), session.current.initial_credit)
        if ahead is None:
            return
        ahead.window = None
        if following.num_frames:
            self._hear(session, ahead, following, expected, is_expected=True)

    def _hear(
        self,
        session: DraftState,
        draft: WindowDraft,
        window: Window,
        expected: Sequence[int],
        *,
        is_expected: bool = False,
    ) -> None:
        """Begin with a window; its audio may be in the slot already."""
        draft.begin(
            window,
            is_expected=is_expected,
            expected=expected,
            num_blocks=session.num_blocks.get(window.id, 0),
        )
        extent = (window.start_frame, window.num_frames)
        if draft.encoded == extent:  # it is tried again
            if draft.is_ready:
                self._model.rollback(draft.slot, 0)
            return
        if draft.encoding is not None:
            draft.encoding.cancel()
        draft.encoded = extent
        if session.options.live is None:
            audio, start_frame = session.recording, window.start_frame
        else:
            audio, start_frame = session.recording.clip(*extent), 0
        slot = draft.slot
        before = [encoding for encoding in self._unfinished.get(slot, ()) if not encoding.done()]

        def encode() -> None:
            wait(before)  # the slot's last owner may still be writing there
            self._model.encode(slot, audio, start_frame)

        draft.encoding = self._executor.submit(encode)
        self._unfinished[slot] = [*before, draft.encoding]
        self._encodings.add(draft.encoding)
        draft.encoding.add_done_callback(lambda _: self._wake())

    def _follow(self, session: DraftState, commit: Commit) -> None:
        """Apply a commit: keep what agrees, forget the rest."""
        draft = session.current
        if draft.window is None or commit.window_id != draft.window.id:
            return
        self._time_answer(session, commit)
        belief, known, drafted = draft.belief, draft.belief.num_committed, len(draft.belief.tokens)
        agreed = belief.apply(
            commit.base,
            commit.tokens,
            held=commit.held,
            blocks_answered=commit.candidates_received,
            credit=commit.credit,
            lost_all=not session.length.mode.self_decodes and _had_nothing(commit),
        )
        if draft.is_ready:  # until then the encoder's thread owns the slot, and nothing is in it
            self._model.rollback(draft.slot, len(draft.window.prompt) + agreed)
        draft.gave_way = False
        end = min(agreed + 1, drafted, belief.num_committed)
        judged = [position for position in range(known, end) if position in draft.distances]
        session.controller.observe_tokens(
            [draft.distances[position] for position in judged],
            [exp(draft.log_probs[position]) for position in judged],
            num_right=sum(position < agreed for position in judged),
            num_committed=belief.num_committed - known,
        )
        if commit.is_final:
            draft.window = None

    def _time_answer(self, session: DraftState, commit: Commit) -> None:
        """Note what link and target took for the newest block that a commit answers."""
        sent_ns = session.current.answered_since_ns(commit)
        if sent_ns is not None and commit.timing.block_age_ns != UNKNOWN_AGE_NS:
            round_trip_ns = max(0, self._clock() - sent_ns - commit.timing.block_age_ns)
            session.report += DraftReport(network_ns=round_trip_ns, num_answers=1)
            session.controller.observe_answer(round_trip_ns)
        if commit.tokens and not commit.num_reused:
            timing = commit.timing
            session.controller.observe_forward(1 + commit.num_verified, timing.forward_ns, timing.batch_size)

    def _row(self, session: DraftState, draft: WindowDraft) -> Row:
        if draft.window is None or draft.encoding is None:
            raise RuntimeError("A session without a window cannot draft.")
        draft.encoding.result()  # what went wrong with it surfaces here
        sequence = [*draft.window.prompt, *draft.belief.tokens]
        fed = self._model.length(draft.slot)
        return Row(
            slot=draft.slot,
            tokens=sequence[fed:],
            num_candidates=0,
            generated=draft.belief.tokens,
            timestamps=session.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(session.options),
            sampling=window_sampling(draft.window, session.options),
            acceptance=session.options.acceptance,
        )

    def _can_draft(self, session: DraftState, draft: WindowDraft) -> bool:
        if draft.window is None or not draft.is_ready:
            return False
        tokens = draft.belief.tokens
        if tokens and tokens[-1] in self._model.vocabulary.ends:
            return False
        room = min(draft.window.max_new_tokens, self._model.max_positions - len(draft.window.prompt))
        if len(tokens) >= min(self._limit(session, draft.belief), room):
            return False
        min_confidence = session.controller.choice.min_confidence
        return not min_confidence or draft.confidence >= min_confidence

    def _limit(self, session: DraftState, belief: Belief) -> int:
        """Give the position up to which (exclusive) the draft may extend a belief now."""
        choice = session.controller.choice
        if not session.length.mode.drafts:
            return belief.num_committed
        if not session.length.mode.is_lock_step:
            return min(belief.credit, belief.num_committed + choice.max_ahead)
        if belief.blocks_in_flight:
            return len(belief.tokens)
        return min(belief.credit, belief.num_sent + choice.gamma)

    def _block_is_due(self, session: DraftState, draft: WindowDraft) -> bool:
        """Whether a block is full, or is all there is; an empty one lets a target that waits go on alone."""
        if not draft.is_ready:
            return False
        belief, mode = draft.belief, session.length.mode
        if mode.is_lock_step and belief.blocks_in_flight:
            return False
        if draft.num_unsent >= session.controller.choice.gamma:
            return True
        if self._can_draft(session, draft):
            return False
        if draft.num_unsent or draft.is_expected:
            return draft.num_unsent > 0
        has_nothing = belief.num_committed == len(belief.tokens) and not belief.blocks_in_flight
        return has_nothing and not draft.gave_way and mode.drafts and not mode.self_decodes


def _had_nothing(commit: Commit) -> bool:
    """Tell whether a target decoded by itself since it held no candidates, not since a pass was full."""
    return commit.num_self_decoded > 0 and commit.held == commit.base + len(commit.tokens)
