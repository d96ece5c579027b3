"""The draft's engine: drafts for many sessions at once and follows what the target commits.

Like the target's engine it owns no thread or socket; one process calls it directly, the draft server runs it
in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.options import DecodingOptions
from specwhisper.speculation.controller import Choice, Controller, Estimates
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.ledger import Belief
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Proposal, Window, WindowOpened
from specwhisper.whisper.choosing import Row
from specwhisper.whisper.model import Model
from specwhisper.whisper.rules import max_initial_timestamp
from specwhisper.whisper.sampling import window_sampling
from specwhisper.whisper.slots import Slots


@dataclass(frozen=True, slots=True)
class Drafted:
    """A block to send, and how the session does.

    Attributes
    ----------
    forward_ns : time in the draft's forward passes since the last block.
    network_ns : time that the blocks answered since then, and their answers, were on their way.
    choice, estimates : how far the draft runs ahead now, and what that was chosen from.
    """

    candidates: Candidates
    forward_ns: int
    network_ns: int = 0
    choice: Choice | None = None
    estimates: Estimates | None = None


@dataclass(slots=True, eq=False)
class _Session:
    """One transcription as the draft sees it."""

    slot: int
    length: DraftLength
    controller: Controller
    options: DecodingOptions
    initial_credit: int
    recording: Recording
    belief: Belief
    window: Window | None = None
    encoding: Future[None] | None = None  # of the open window, or the last one
    encoded_frame: int | None = None  # where the audio in the slot begins
    proposals: dict[int, Proposal] = field(default_factory=dict)  # by position
    gave_way: bool = False  # an empty block was sent and not answered yet
    distances: dict[int, int] = field(default_factory=dict)  # by position: how far behind the known end
    sent_ns: deque[int] = field(default_factory=deque)  # of blocks that are not answered
    num_answered: int = 0  # blocks of the window
    forward_ns: int = 0
    network_ns: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the draft has heard the open window."""
        return self.window is not None and self.encoding is not None and self.encoding.done()


class Drafter:
    """Extends each session's belief token by token and cuts it into blocks.

    Parameters
    ----------
    executor : runs encodings one after the other: a slot's new owner encodes behind its last one.
    clock : tells the time, in nanoseconds from any moment.
    wake : called, from any thread, when an encoding is done and :meth:`step` has something to do.
    """

    holds_for_s = 0.0  # nobody gains if it waits

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        clock: Callable[[], int] = perf_counter_ns,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._executor = executor
        self._clock = clock
        self._wake = wake
        self._slots = Slots(model.num_slots, "The draft server")
        self._sessions: dict[str, _Session] = {}
        self._failures: list[tuple[str, Failed]] = []

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened."""
        return self._slots.num_free

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        return bool(self._failures) or any(
            self._can_draft(session) or self._block_is_due(session) for session in self._sessions.values()
        )

    def open(
        self, session_id: str, length: DraftLength, options: DecodingOptions, *, max_ahead_tokens: int
    ) -> None:
        """Open a session; :class:`ServerFull` when every slot is taken."""
        recording = Recording(options.log_mel_max)
        self._sessions[session_id] = _Session(
            slot=self._slots.take(),
            length=length,
            controller=Controller(length),
            options=options,
            initial_credit=max_ahead_tokens,
            recording=recording,
            belief=Belief(credit=max_ahead_tokens),
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; of no effect when it is gone already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.encoding is not None:
            session.encoding.cancel()
        self._slots.give_back(session.slot)

    def submit(self, session_id: str, message: AudioChunk | WindowOpened | Commit) -> None:
        """Take in the session's audio and what its target says; what goes wrong ends this session's draft."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    session.recording.append(message)
                case WindowOpened(window=window):
                    self._begin(session, window)
                case Commit():
                    self._follow(session, message)
        except Exception as error:
            self._fail(session_id, error)

    def step(self) -> list[tuple[str, Drafted | Failed]]:
        """Draft one token for every session that may, and give the blocks that are complete."""
        rows = {}
        for session_id, session in list(self._sessions.items()):
            try:
                if self._can_draft(session):
                    rows[session_id] = self._row(session)
            except Exception as error:
                self._fail(session_id, error)
        if rows:
            self._draft(rows)
        blocks = [
            (session_id, self._take_block(session))
            for session_id, session in self._sessions.items()
            if self._block_is_due(session)
        ]
        failures, self._failures = self._failures, []
        return [*blocks, *failures]

    def _draft(self, rows: Mapping[str, Row]) -> None:
        """Extend beliefs by a token; if that fails, one by one, so that one alone ends."""
        started_ns = self._clock()
        held = [self._model.length(row.slot) for row in rows.values()]
        try:
            scores = self._model.score(list(rows.values()))
        except Exception as error:
            if len(rows) == 1:
                self._fail(next(iter(rows)), error)
                return
            for length, (session_id, row) in zip(held, rows.items(), strict=True):
                self._model.rollback(row.slot, length)
                self._draft({session_id: row})
            return
        forward_ns = self._clock() - started_ns
        for session_id, score in zip(rows, scores, strict=True):
            session = self._sessions[session_id]
            belief, position = session.belief, len(session.belief.tokens)
            belief.tokens.append(score.tokens[0])
            session.distances[position] = position - belief.num_committed
            session.proposals.update((position, proposal) for proposal in score.proposals)
            session.forward_ns += forward_ns
            session.controller.observe_step(forward_ns)

    def _fail(self, session_id: str, error: Exception) -> None:
        self._failures.append((session_id, Failed(error)))
        self.close(session_id)

    def _begin(self, session: _Session, window: Window) -> None:
        session.window = window
        session.gave_way = False
        session.belief = Belief(credit=session.initial_credit)
        session.proposals = {}
        session.distances = {}
        session.sent_ns.clear()
        session.num_answered = 0
        session.recording.discard_before(window.start_sample)
        if session.encoded_frame == window.start_frame:  # it is tried again
            if session.is_ready:
                self._model.rollback(session.slot, 0)
            return
        if session.encoding is not None:
            session.encoding.cancel()
        session.encoded_frame = window.start_frame
        session.encoding = self._executor.submit(
            self._model.encode, session.slot, session.recording, window.start_frame
        )
        session.encoding.add_done_callback(lambda _: self._wake())

    def _follow(self, session: _Session, commit: Commit) -> None:
        """Apply a commit: keep what agrees, forget the rest."""
        if session.window is None or commit.window_id != session.window.id:
            return
        self._time_answer(session, commit)
        belief, known, drafted = session.belief, session.belief.num_committed, len(session.belief.tokens)
        agreed = belief.apply(
            commit.base,
            commit.tokens,
            held=commit.held,
            blocks_answered=commit.candidates_received,
            credit=commit.credit,
        )
        if session.is_ready:  # until then the encoder's thread owns the slot, and nothing is in it
            self._model.rollback(session.slot, len(session.window.prompt) + agreed)
        session.gave_way = False
        judged = range(known, min(agreed + 1, drafted, belief.num_committed))
        session.controller.observe_tokens(
            [session.distances[position] for position in judged],
            num_right=agreed - known,
            num_committed=belief.num_committed - known,
        )
        if commit.is_final:
            session.window = None

    def _time_answer(self, session: _Session, commit: Commit) -> None:
        """Note what link and target took for the newest block that a commit answers."""
        sent_ns = None
        while session.num_answered < commit.candidates_received and session.sent_ns:
            session.num_answered += 1
            sent_ns = session.sent_ns.popleft()
        if sent_ns is not None:
            round_trip_ns = max(0, self._clock() - sent_ns - commit.timing.block_age_ns)
            session.network_ns += round_trip_ns
            session.controller.observe_answer(round_trip_ns)
        if commit.tokens and not commit.is_recalled:
            session.controller.observe_pass(1 + commit.num_verified, commit.timing.forward_ns)

    def _row(self, session: _Session) -> Row:
        if session.window is None or session.encoding is None:
            raise RuntimeError("A session without a window cannot draft.")
        session.encoding.result()  # what went wrong with it surfaces here
        sequence = [*session.window.prompt, *session.belief.tokens]
        fed = self._model.length(session.slot)
        return Row(
            slot=session.slot,
            tokens=sequence[fed:],
            num_candidates=0,
            generated=session.belief.tokens,
            timestamps=session.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(session.options),
            sampling=window_sampling(session.window, session.options),
            acceptance=session.options.acceptance,
        )

    def _can_draft(self, session: _Session) -> bool:
        if session.window is None or not session.is_ready:
            return False
        tokens = session.belief.tokens
        if tokens and tokens[-1] in self._model.vocabulary.ends:
            return False
        room = min(session.window.max_new_tokens, self._model.max_positions - len(session.window.prompt))
        return len(tokens) < min(self._limit(session), room)

    def _limit(self, session: _Session) -> int:
        """Give the position up to which (exclusive) the draft may extend its belief now."""
        belief, choice = session.belief, session.controller.choice
        if not session.length.mode.drafts:
            return belief.num_committed
        if not session.length.mode.waits:
            return min(belief.credit, belief.num_committed + choice.max_ahead)
        if belief.blocks_in_flight:
            return len(belief.tokens)
        return min(belief.credit, belief.num_sent + choice.gamma)

    def _block_is_due(self, session: _Session) -> bool:
        """Whether a block is full, or is all there is; an empty one lets a target that waits go on alone."""
        if not session.is_ready:
            return False
        belief, mode = session.belief, session.length.mode
        if mode.waits and belief.blocks_in_flight:
            return False
        unsent = len(belief.tokens) - belief.num_sent
        if unsent >= session.controller.choice.gamma:
            return True
        if self._can_draft(session):
            return False
        has_nothing = belief.num_committed == len(belief.tokens) and not belief.blocks_in_flight
        return unsent > 0 or (has_nothing and not session.gave_way and mode.drafts and not mode.self_decodes)

    def _take_block(self, session: _Session) -> Drafted:
        if session.window is None:
            raise RuntimeError("A session without a window has no candidates.")
        belief = session.belief
        base, tokens = belief.take_block(session.controller.choice.gamma)
        session.sent_ns.append(self._clock())
        session.gave_way = not tokens
        forward_ns, session.forward_ns = session.forward_ns, 0
        network_ns, session.network_ns = session.network_ns, 0
        places = range(base, base + len(tokens))
        block = Candidates(
            session.window.id,
            base,
            belief.num_committed,
            tokens,
            proposals=tuple(session.proposals[i] for i in places if i in session.proposals),
        )
        controller = session.controller
        return Drafted(block, forward_ns, network_ns, controller.choice, controller.estimates)
