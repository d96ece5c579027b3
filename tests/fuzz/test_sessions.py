"""Valid sessions get their text whatever hostile sessions beside them send."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from experiments.common.models.scripted import VOCABULARY
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server import candidate_call
from tests.fuzz.messages import SIZE, TOKENS, messages, resumes
from tests.fuzz.running import CALL_S, Running, Speaking, explore, fuzzed, read_all, send
from tests.fuzz.test_calls import REFUSALS
from tests.rpc.hostile import Request, Session, Shared, audio, candidates, hello, window_tokens
from tests.rpc.services import MAX_SESSIONS, RATE, all_free, eventually, recording

MODES = ("MODE_TARGET_ONLY", "MODE_SYNC", "MODE_PIPELINED", "MODE_FULL")
LENGTHS_S = (1.0, 33.0)
PIECE = 2 * RATE  # samples
BAD_TOKENS = st.sampled_from([SIZE, SIZE + 1, 2**31 - 1, 2**31, 2**32 - 1])
ENDED = (grpc.aio.AioRpcError, asyncio.InvalidStateError)  # raised by a write to an ended call
WHICH = st.integers(0, MAX_SESSIONS - 1)
NUMBERS = st.sampled_from([0, 1, 2, 64, 2**31, 2**32 - 1]) | st.integers(0, 70)


@st.composite
def blocks(draw: st.DrawFn) -> pb.Candidates:
    """Draw candidates that no draft would send, of valid tokens."""
    block = candidates(draw(st.lists(TOKENS, max_size=64)), draw(NUMBERS))
    block.window_id = draw(st.integers(0, 3) | NUMBERS)
    block.known_committed, block.block_number = draw(NUMBERS), draw(NUMBERS)
    if draw(st.booleans()):
        block.start_frame = draw(NUMBERS)
    return block


@st.composite
def hostile_messages(draw: st.DrawFn) -> Request:
    match draw(st.integers(0, 2)):
        case 0:
            return draw(messages(pb.VerifyRequest.DESCRIPTOR))
        case 1:
            block = draw(blocks())
            block.tokens[:] = [*block.tokens[:63], draw(BAD_TOKENS)]
            return block
        case _:
            return pb.VerifyRequest(resume=draw(resumes()))


class Speaker(Speaking):
    """A session whose responses are read all the time.

    Parameters
    ----------
    shared, number : a ``Share`` call that it joins, and its number there; ``None``: it has one of its own.
    """

    def __init__(
        self, running: Running, mode: str, length_s: float, seed: int, shared: Shared | None, number: int
    ) -> None:
        super().__init__(running, length_s, seed, PIECE)
        self.shared, self.number = shared, number
        running.run(self._open(mode))

    async def _open(self, mode: str) -> None:
        self.session = Session(self.running.target, self.shared, self.number)
        await self.session.send(hello(mode=mode))
        await self.session.read()
        self.reading = asyncio.create_task(read_all(self.session))

    def send(self, *requests: Request) -> None:
        self.running.run(send(self.session, *requests))

    def finish(self) -> None:
        self.send_all()
        self.running.run(self._end())
        if self.shared is not None:
            self.running.run(eventually(self._is_finished))
            assert not (self.session.opened or self.session.commits)
            assert self.shared.tokens(self.number) == self.expected
        else:
            assert window_tokens(self.session.responses, {}) == self.expected

    def _is_finished(self) -> bool:
        events = self.shared.events.get(self.number, []) if self.shared else []
        return bool(events) and events[-1].is_finished

    def offend(self, requests: Sequence[Request]) -> None:
        """Send hostile messages; invalid ones must be refused as such."""
        self.send(*requests)
        try:
            self.running.run(self._end(leaves=True))
        except grpc.aio.AioRpcError as error:
            assert error.code() in REFUSALS, error.details()

    async def _end(self, *, leaves: bool = False) -> None:
        if leaves:
            with suppress(*ENDED):
                await self.session.call.done_writing()
        try:
            async with asyncio.timeout(CALL_S):
                await self.reading
        finally:
            self.session.cancel()


class SessionsAtOneTarget(RuleBasedStateMachine):
    """Sessions send audio, candidates and hostile messages, and leave, in any order."""

    running: Running

    def __init__(self) -> None:
        super().__init__()
        self.speakers: list[Speaker] = []
        self.shared: Shared | None = None
        self.reading: asyncio.Task[None] | None = None
        self.num_opened = 0

    @rule(
        mode=st.sampled_from(MODES),
        length_s=st.sampled_from(LENGTHS_S),
        seed=st.integers(0, 2),
        shares=st.booleans(),
    )
    def open(self, mode, length_s, seed, shares):
        if len(self.speakers) >= MAX_SESSIONS:
            return
        if shares and (self.reading is None or self.reading.done()):  # it ends without sessions
            self.running.run(self._open_shared())
        self.num_opened += 1
        shared = self.shared if shares else None
        self.speakers.append(Speaker(self.running, mode, length_s, seed, shared, self.num_opened))

    async def _open_shared(self) -> None:
        self.shared = Shared(self.running.target.stub)
        await self.shared.open()
        self.reading = asyncio.create_task(read_all(self.shared))

    @precondition(lambda self: self.shared is not None)
    @rule(number=st.integers(0, 12), sent=st.lists(blocks(), min_size=1, max_size=3))
    def propose_for_any(self, number, sent):
        """Send invented blocks in the shared call, for sessions that may not exist."""
        self.running.run(self.shared.send(number, *sent))

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH, num_pieces=st.integers(1, 20))
    def send_piece(self, which, num_pieces):
        for _ in range(num_pieces):
            self._speaker(which).send_piece()

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH, place=st.integers(0, 16))
    def repeat(self, which, place):
        """Send a piece of audio twice, or late."""
        speaker = self._speaker(which)
        if place * PIECE < speaker.sent_to:
            speaker.send(speaker.piece(place * PIECE))

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH, sent=st.lists(blocks(), min_size=1, max_size=3))
    def propose(self, which, sent):
        """Send blocks that are invented, stale, repeated or out of order."""
        self._speaker(which).send(*sent)

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH, start=st.integers(0, 40 * RATE) | NUMBERS, text=st.text(max_size=40))
    def hint(self, which, start, text):
        """Send a text that is not in the audio, at any time."""
        self._speaker(which).send(pb.VerifyRequest(hint=decoding_pb2.Hint(start_sample=start, text=text)))

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH)
    def finish(self, which):
        self._take(which).finish()

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH)
    def leave(self, which):
        self._take(which).leave()

    @precondition(lambda self: self.speakers)
    @rule(which=WHICH, message=hostile_messages(), num=st.integers(1, 3))
    def offend(self, which, message, num):
        self._take(which).offend([message] * num)

    @invariant()
    def slots_are_those_of_open_sessions(self):
        most = MAX_SESSIONS - sum(not speaker.has_sent_all for speaker in self.speakers)
        least = MAX_SESSIONS - len(self.speakers)
        self.running.run(eventually(lambda: least <= self.running.target.num_free_slots <= most))

    def teardown(self):
        try:
            for speaker in self.speakers:
                speaker.finish()
        finally:
            for speaker in self.speakers:
                speaker.leave()
            if self.shared is not None:
                self.running.run(self._close_shared())
            self.running.run(all_free(self.running.target))

    async def _close_shared(self) -> None:
        self.reading.cancel()
        self.shared.call.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)

    def _speaker(self, which: int) -> Speaker:
        return self.speakers[which % len(self.speakers)]

    def _take(self, which: int) -> Speaker:
        return self.speakers.pop(which % len(self.speakers))


async def ended(session: Session, requests: Sequence[Request]) -> None:
    """Send, close, and check that the status is one of an invalid request."""

    async def send_all() -> None:
        await send(session, *requests)
        with suppress(*ENDED):
            await session.call.done_writing()

    sending = asyncio.create_task(send_all())
    try:
        async with asyncio.timeout(CALL_S):
            await read_all(session)
    except grpc.aio.AioRpcError as error:
        assert error.code() in REFUSALS, error.details()
    finally:
        await asyncio.gather(sending, return_exceptions=True)
        session.cancel()


@pytest.mark.timeout(600)
def test_sessions_side_by_side(running, monkeypatch):
    monkeypatch.setattr(candidate_call, "SILENCE_S", 600.0)  # the shared call sends no heartbeats

    explore(SessionsAtOneTarget, running, 40, 20)


@fuzzed()
@given(
    options=messages(decoding_pb2.DecodingOptions.DESCRIPTOR),
    mode=st.sampled_from(MODES),
    sent=st.lists(blocks() | hostile_messages(), max_size=4),
    place=st.integers(0, 4),
)
def test_any_options_and_messages(running, options, mode, sent, place):
    """Send any messages after a valid hello, in the middle of valid audio."""
    options.languages[:] = ["en"]
    opening = pb.VerifyRequest(
        hello=pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            vocabulary_digest=VOCABULARY.digest,
            mode=mode,
            decoding=options,
        )
    )
    pcm = recording(1.0)
    pieces = [audio(pcm[at : at + 16_000], at // 2, is_last=at == 16_000) for at in (0, 16_000)]

    async def run() -> None:
        await ended(Session(running.target), [opening, *sent[:place], *pieces, *sent[place:]])
        await eventually(lambda: running.target.num_free_slots == MAX_SESSIONS)

    running.run(run())
