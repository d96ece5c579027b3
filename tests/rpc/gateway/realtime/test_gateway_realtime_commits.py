"""A client's commit is answered at once, even when a lot of audio is still waiting."""

import asyncio

import pytest

from specwhisper.types import SAMPLE_RATE
from specwhisper_gateway import sockets
from specwhisper_gateway.realtime import turn
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import EVERYTHING
from tests.rpc.realtime import COMPLETED, SAME_RATE, UTTERANCE, base64_of, close_code, pieces, session, up_to


class Busy(ScriptedTranscription):
    def __init__(self) -> None:
        super().__init__(EVERYTHING)
        self.may_read = asyncio.Event()
        self.turns: list[bytes] = []

    async def StreamingRecognize(self, request_iterator, context):
        await self.may_read.wait()
        self.audio = b""
        async for response in super().StreamingRecognize(request_iterator, context):
            yield response
        self.turns.append(self.audio)


async def send(connection, turns):
    await connection.session.update(session=settings(turn_detection=None))
    for each in turns:
        for piece in pieces(each):
            await connection.input_audio_buffer.append(audio=base64_of(piece))
        await connection.input_audio_buffer.commit()


TURNS = [bytes([number]) * 3_200 for number in range(1, 10)] + [bytes(2 * SAMPLE_RATE * 90)]


async def test_pings_are_answered_while_turns_wait():
    async with gateway_for(server := Busy()) as gateway, session(gateway) as connection:
        await send(connection, TURNS)
        pong = await connection._connection.ping()  # the client's own would come after 20 s
        await up_to(connection, UTTERANCE[2], len(TURNS))
        await asyncio.wait_for(pong, 10)
        assert not server.turns, "commits are answered before any text"
        server.may_read.set()
        events = await up_to(connection, COMPLETED, len(TURNS))
    assert server.turns == TURNS
    assert events[-1].usage.seconds == 90


async def test_a_client_waits_while_too_much_is_not_transcribed(monkeypatch):
    monkeypatch.setattr(turn, "MAX_WAITING_BYTES", 3 * turn.TURN_BYTES)
    async with gateway_for(server := Busy()) as gateway, session(gateway) as connection:
        sending = asyncio.create_task(send(connection, TURNS[:9]))
        await up_to(connection, UTTERANCE[2], 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(up_to(connection, UTTERANCE[2]), 0.1)
        server.may_read.set()
        await up_to(connection, COMPLETED, 9)
        await sending
    assert server.turns == TURNS[:9]


async def test_a_draft_server_that_takes_no_audio_ends_the_session(monkeypatch):
    monkeypatch.setattr(sockets, "STALL_TIMEOUT_S", 0.1)
    async with gateway_for(Busy()) as gateway, session(gateway) as connection:
        await send(connection, TURNS[-1:])
        assert await close_code(connection) == 1013


async def test_cleared_turns_leave_room(monkeypatch):
    monkeypatch.setattr(turn, "MAX_WAITING_BYTES", 20 * turn.TURN_BYTES)
    async with gateway_for(server := Busy()) as gateway, session(gateway) as connection:
        await send(connection, TURNS[:1])
        for _ in range(10):
            await connection.input_audio_buffer.append(audio=base64_of(bytes(5 * turn.TURN_BYTES)))
            await connection.input_audio_buffer.clear()
        await send(connection, TURNS[1:2])
        await up_to(connection, UTTERANCE[2], 2)
        server.may_read.set()
        await up_to(connection, COMPLETED, 2)
    assert server.turns == TURNS[:2]


def settings(**audio_input):
    """Return the settings of a session of 16 kHz."""
    same_rate = SAME_RATE["audio"]["input"]
    return {"type": "transcription", "audio": {"input": same_rate | audio_input}}
