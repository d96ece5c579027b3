"""A network that repeats, swaps, drops and delays candidates changes no text.

The draft knows the target's text, and drafts some wrong tokens. Its session migrates between two targets,
and blocks sent to one may reach the other.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine import verifier
from specwhisper.model.choosing import Row, Scores
from specwhisper.types import Candidates, Commit, Limits
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.link.progress import ResumeTracker
from tests.fuzz.running import CALL_S, Running, Speaking, explore, send
from tests.rpc.hostile import Session, hello
from tests.rpc.services import MAX_SESSIONS, RATE, Target, all_free, target_server

MODES = ("MODE_SYNC", "MODE_PIPELINED", "MODE_FULL")
LENGTHS_S = (33.0, 95.0)
PIECE = 8 * RATE  # samples
REACH = 200  # samples before a window that its first frames depend on
FORWARD_S, CANDIDATES_TIMEOUT_NS = 0.001, 2_000_000  # slow enough for faults within a window
MAX_AHEAD = Limits().max_ahead_tokens
INDICES = st.integers(0, 30)
SHIFTS = st.just(0) | st.integers(-20, 60)  # how far a block's base is moved
DRAFTED = st.tuples(st.integers(0, 16), INDICES, SHIFTS, st.sampled_from([True, True, False]))


class SlowModel(ScriptedModel):
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        time.sleep(FORWARD_S)
        return super().score(rows)


class TwoTargets(Running):
    targets: tuple[Target, Target]

    async def serve(self, ready: threading.Event) -> None:
        async with (
            target_server(SlowModel(MAX_SESSIONS)) as first,
            target_server(SlowModel(MAX_SESSIONS)) as second,
        ):
            self.targets = first, second
            ready.set()
            await self._stop.wait()

    def check(self) -> None:
        for target in self.targets:
            self.run(all_free(target))


class Drafting(Speaking):
    """A session of a draft, over all its targets.

    Attributes
    ----------
    committed : tokens by window, of all targets together.
    blocks : all drafted blocks, in order.
    """

    def __init__(self, running: TwoTargets, mode: str, length_s: float, seed: int) -> None:
        super().__init__(running, length_s, seed, PIECE)
        self.mode = mode
        self.tracker = ResumeTracker(MAX_AHEAD)
        self.committed: dict[int, list[int]] = {}
        self.blocks: list[Candidates] = []
        self.numbers: dict[int, int] = {}
        self.epoch = 0
        running.run(self._open())

    async def _open(self) -> None:
        self.session = Session(self.running.targets[self.epoch % 2])
        opening = [hello(mode=self.mode)]
        self.begins_at = 0
        if resume := self.tracker.resume():
            opening.append(pb.VerifyRequest(resume=codec.resume_to_proto(resume)))
            self.begins_at = max(0, resume.window.start_sample - REACH)
        self.sent_to = self.begins_at
        await self.session.send(*opening)
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(EOFError):
            while True:
                await self._observe(await self.session.read())

    async def _observe(self, response: pb.VerifyResponse) -> None:
        match response.WhichOneof("message"):
            case "window_opened":
                event = codec.window_opened_from_proto(response.window_opened)
            case "commit":
                event = codec.commit_from_proto(response.commit)
            case _:
                return
        for news in self.tracker.observe(event):
            if isinstance(news, Commit):
                self.committed.setdefault(news.window_id, []).extend(news.tokens)
            else:
                self.committed.setdefault(news.window.id, [])
        if pending := self.tracker.pop_pending_block():
            await self._write(pending)

    async def _write(self, block: Candidates) -> None:
        await send(self.session, codec.candidates_to_proto(block))

    def repeat(self, place: int) -> None:
        """Repeat a piece that this target has received."""
        start = self.begins_at + place * PIECE
        if start < self.sent_to and not self.reading.done():
            self.running.run(send(self.session, self.piece(start)))

    def draft(self, num: int, wrong_at: int, shift: int) -> Candidates | None:
        """Draft tokens after the committed end, one wrong, perhaps at a shifted base."""
        if not self.committed:
            return None
        window_id = max(self.committed)
        end = len(self.committed[window_id])
        tokens = list(self.expected[window_id][end : end + num])
        if wrong_at < len(tokens):
            tokens[wrong_at] ^= 1
        self.numbers[window_id] = number = self.numbers.get(window_id, 0) + 1
        block = Candidates(window_id, max(0, end + shift), end, tuple(tokens), number)
        self.blocks.append(block)
        return block

    def send(self, block: Candidates | None) -> None:
        if block is not None:
            self.running.run(self._write(block))

    def migrate(self) -> None:
        self.running.run(self._migrate())

    async def _migrate(self) -> None:
        await self.cancel()
        self.epoch += 1
        self.tracker.migrate()
        await self._open()

    async def cancel(self) -> None:
        await super().cancel()
        await all_free(self.running.targets[self.epoch % 2])  # else many migrations in a row find it full

    def finish(self) -> None:
        """Send the rest of the audio, and check the text."""
        self.send_all()
        self.running.run(asyncio.wait_for(asyncio.shield(self.reading), CALL_S))
        assert self.windows == self.expected

    @property
    def windows(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.committed[number]) for number in sorted(self.committed))


class CandidatesUnderWay(RuleBasedStateMachine):
    """All that may happen to candidates between a draft and a target.

    Rules have no preconditions: whether there is something to repeat depends on the target's progress.
    """

    running: TwoTargets

    def __init__(self) -> None:
        super().__init__()
        self.drafting: Drafting | None = None

    @initialize(mode=st.sampled_from(MODES), length_s=st.sampled_from(LENGTHS_S), seed=st.integers(0, 3))
    def open(self, mode, length_s, seed):
        self.drafting = Drafting(self.running, mode, length_s, seed)

    @rule(num_pieces=st.integers(1, 6))
    def send_piece(self, num_pieces):
        for _ in range(num_pieces):
            self.drafting.send_piece()

    @rule(place=st.integers(0, 12))
    def repeat_audio(self, place):
        self.drafting.repeat(place)

    @rule(drafted=st.lists(DRAFTED, min_size=1, max_size=4))
    def draft(self, drafted):
        """Draft blocks; one that does not arrive is lost, unless it arrives late."""
        for num, wrong_at, shift, arrives in drafted:
            block = self.drafting.draft(num, wrong_at, shift)
            if arrives:
                self.drafting.send(block)

    @rule(which=st.integers(0, 3) | INDICES, times=st.integers(1, 3))
    def arrive_late(self, which, times):
        """Send a block of any window, drafted for either target: delayed, after a later one, or repeated."""
        for _ in range(times if self.drafting.blocks else 0):
            self.drafting.send(self.drafting.blocks[-1 - which % len(self.drafting.blocks)])

    @rule()
    def migrate(self):
        self.drafting.migrate()

    @invariant()
    def committed_tokens_are_the_targets_own(self):
        if self.drafting is None:
            return
        for number, tokens in list(self.drafting.committed.items()):
            prefix = tuple(tokens)
            assert prefix == self.drafting.expected[number][: len(prefix)]

    @invariant()
    def the_session_does_not_fail(self):
        if self.drafting is not None and self.drafting.reading.done():
            self.drafting.reading.result()

    def teardown(self):
        if self.drafting is not None:
            try:
                self.drafting.finish()
            finally:
                self.drafting.leave()


@pytest.fixture(scope="module")
def two_targets() -> Iterator[TwoTargets]:
    with pytest.MonkeyPatch.context() as patch, TwoTargets().in_thread() as running:
        patch.setattr(verifier, "CANDIDATES_TIMEOUT_NS", CANDIDATES_TIMEOUT_NS)
        yield running
        running.check()


@pytest.mark.timeout(1800)
def test_lost_and_repeated_candidates_change_no_text(two_targets):
    explore(CandidatesUnderWay, two_targets, 20, 25)
