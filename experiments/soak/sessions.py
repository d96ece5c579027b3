"""Short sessions of all kinds, most of them whole, many left at any moment."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from random import Random
from typing import Any

import grpc.aio
import numpy as np
import openai
import soundfile

from experiments.common.models.scripted import END, recording
from experiments.common.models.speech import SPOKEN_MULTILINGUAL, SpeechOrNoiseModel, spoken_utterances, talk
from experiments.common.servers.clients import LOG_MEL_MAX, MODES
from experiments.common.servers.forked import ForkedServer, Probes
from experiments.soak.servers import GATEWAY, Servers
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.options import DecodingOptions, Padding
from specwhisper.rpc.channels import open_channel
from specwhisper.types import LIVE_MODES, SAMPLE_RATE, Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.codec import config_to_proto
from specwhisper_client.streaming import StreamingClient

AT_ONCE = 8
LENGTHS_S = (1.0, 3.0, 6.0)
MAX_STAY_S = 0.3  # of a client that leaves early
LIVE_SPANS, LIVE_S = ((0.3, 1.1),), 2.0
OPTIONS = DecodingOptions.greedy(language="en", log_mel_max=LOG_MEL_MAX)


class Kind(StrEnum):
    """How a session begins and ends."""

    WHOLE = "whole"
    LIVE = "live"
    GATEWAY = "over the gateway"
    CANCELLED = "cancelled"
    CANCELLED_LIVE = "live, cancelled"
    CANCELLED_GATEWAY = "over the gateway, cancelled"
    ONLY_CONNECTED = "connected and left"
    KILLED = "client killed"


WEIGHTS = {
    Kind.WHOLE: 0.4,
    Kind.LIVE: 0.1,
    Kind.GATEWAY: 0.2,
    Kind.CANCELLED: 0.12,
    Kind.CANCELLED_LIVE: 0.05,
    Kind.CANCELLED_GATEWAY: 0.08,
    Kind.ONLY_CONNECTED: 0.04,
    Kind.KILLED: 0.01,
}
OVER_THE_GATEWAY = (Kind.GATEWAY, Kind.CANCELLED_GATEWAY)


@dataclass(slots=True)
class Tally:
    """Counts of sessions and errors."""

    done: Counter[Kind] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def num_at(self, server: str) -> int:
        """Count the sessions that a server had: few of them come over the gateway."""
        return sum(self.done[kind] for kind in (OVER_THE_GATEWAY if server == GATEWAY else Kind))


async def run_sessions(servers: Servers, num: int, random: Random, tally: Tally) -> None:
    """Run so many, some at once; none is refused, as there are more slots."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(kind: Kind, seed: int) -> None:
        async with room:
            try:
                await asyncio.wait_for(run_session(servers, kind, Random(seed)), 60.0)
            except Exception as error:
                tally.errors.append(f"{kind}: {type(error).__name__}: {error}")
            tally.done[kind] += 1

    kinds = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=num)
    await asyncio.gather(*(one(kind, random.getrandbits(32)) for kind in kinds))


async def run_session(servers: Servers, kind: Kind, random: Random) -> None:
    """Run one to its end, or leave it."""
    length_s, mode = random.choice(LENGTHS_S), random.choice(MODES)
    match kind:
        case Kind.WHOLE:
            await transcribe(servers, length_s, mode)
        case Kind.LIVE:
            await speak(servers, random.choice(LIVE_MODES))
        case Kind.GATEWAY:
            await upload(servers, length_s)
        case Kind.CANCELLED:
            await leave(transcribe(servers, length_s, mode), random)
        case Kind.CANCELLED_LIVE:
            await leave(speak(servers, mode), random)
        case Kind.CANCELLED_GATEWAY:
            await leave(upload(servers, length_s), random)
        case Kind.ONLY_CONNECTED:
            await leave(connect(servers), random)
        case Kind.KILLED:
            client = ForkedServer(serve_client, servers.draft.address)
            await asyncio.sleep(random.uniform(0, 5 * MAX_STAY_S))
            await client.kill()


async def leave(session: Coroutine[Any, Any, None], random: Random) -> None:
    """Cancel a session at a random moment, if it is not over by then."""
    running = asyncio.create_task(session)
    await asyncio.wait((running,), timeout=random.uniform(0, MAX_STAY_S))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def transcribe(servers: Servers, length_s: float, mode: Mode) -> None:
    """Transcribe a recording over its own connection."""
    async with TranscriptionClient(servers.draft.address) as client:
        transcript = await client.recognize(wav(length_s), OPTIONS, mode=mode)
    if transcript.text != text_alone(length_s):
        raise AssertionError(f"wrote {transcript.text!r} and not {text_alone(length_s)!r}")


async def speak(servers: Servers, mode: Mode) -> None:
    """Send live audio as fast as it is accepted."""
    words: dict[int, list[int]] = {}
    async with StreamingClient(
        servers.draft.address, DecodingOptions.greedy(language="en"), mode=mode
    ) as stream:
        await stream.send(talk(LIVE_SPANS, LIVE_S))
        await stream.finish()
        async for update in stream:
            for segment in update.segments:
                words.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
    if words != (due := spoken_utterances(talk(LIVE_SPANS, LIVE_S))):
        raise AssertionError(f"received {words}, expected {due}")


async def upload(servers: Servers, length_s: float) -> None:
    """Transcribe a recording over HTTP."""
    url = f"http://{servers.gateway.address}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as api:
        reply = await api.audio.transcriptions.create(
            file=("speech.wav", wav(length_s)), model="whisper-1", language="en"
        )
    expected = text_alone(length_s, Padding.ZERO)  # the gateway's own
    if reply.text != expected:
        raise AssertionError(f"wrote {reply.text!r} and not {expected!r}")


async def connect(servers: Servers) -> None:
    """Begin a stream, and send nothing."""
    config = config_to_proto(OPTIONS, None, None, is_container=False)
    first = pb.StreamingRecognizeRequest(streaming_config=pb.StreamingRecognitionConfig(config=config))
    async with open_channel(servers.draft.address) as channel:
        call = TranscriptionStub(channel).StreamingRecognize()
        await call.write(first)
        while await call.read() is not grpc.aio.EOF:
            pass


async def serve_client(address: str, probes: Probes) -> None:
    """Transcribe one recording after the other until killed; in a process."""
    async with TranscriptionClient(address) as client:
        while True:
            await client.recognize(wav(LENGTHS_S[-1]), OPTIONS)


@cache
def wav(length_s: float) -> bytes:
    """Return a recording as a file."""
    file = io.BytesIO()
    samples = np.frombuffer(recording(length_s), "<i2")
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


@cache
def text_alone(length_s: float, padding: Padding = Padding.SILENCE) -> str:
    """Return what the target writes by itself."""
    alone = InlinePair(SpeechOrNoiseModel(vocabulary=SPOKEN_MULTILINGUAL))
    return alone.transcribe([recording(length_s)], replace(OPTIONS, padding=padding))[0].text.strip()
