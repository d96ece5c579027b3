"""Clients of OpenAI's realtime API, for tests of the gateway."""

import base64
from contextlib import asynccontextmanager

import pytest
import websockets

QUERY = {"intent": "transcription"}
PCM = bytes(range(256)) * 300  # 1.6 s at 24 kHz
SECONDS = len(PCM) / 48_000


def settings(**audio_input):
    """Return the settings of a session."""
    return {"type": "transcription", "audio": {"input": audio_input}}


MANUAL = settings(turn_detection=None)
SAME_RATE = settings(format={"type": "audio/pcm", "rate": 16_000})
UTTERANCE = (
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
)
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
INTERIM = "conversation.item.input_audio_transcription.interim"


def base64_of(pcm):
    return base64.b64encode(pcm).decode()


def pieces(pcm, num_bytes=480_000):
    return [pcm[start : start + num_bytes] for start in range(0, len(pcm), num_bytes)]


@asynccontextmanager
async def session(gateway, **settings):
    """Create a session with the asynchronous client."""
    async with gateway.api.realtime.connect(extra_query=QUERY, **settings) as connection:
        created = await connection.recv()
        assert created.type == "session.created"
        yield connection


async def up_to(connection, kind, count=1):
    """Return all events up to ``count`` of a kind."""
    events = []
    while sum(event.type == kind for event in events) < count:
        events.append(await connection.recv())
    return events


async def turn(connection, pcm=PCM):
    """Send a turn; return the events up to its text."""
    await connection.input_audio_buffer.append(audio=base64_of(pcm))
    await connection.input_audio_buffer.commit()
    return await up_to(connection, COMPLETED)


async def close_code(connection, frame=None):
    """Return the code that a session is closed with, also while a frame is sent."""
    with pytest.raises(websockets.ConnectionClosed) as closed:
        if frame is not None:
            await connection.send_raw(frame)
        while True:
            await connection.recv()
    return closed.value.rcvd.code


async def refusal(gateway, **settings):
    """Return the error that a connection is sent after it was accepted, and its close code."""
    async with gateway.api.realtime.connect(**({"extra_query": QUERY} | settings)) as connection:
        event = await connection.recv()
        assert event.type == "error"
        return event.error, await close_code(connection)
