"""Clients that log all updates, their requests, and the text that the target alone would have written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import grpc.aio
import numpy as np
import openai
import soundfile

from experiments.common.audio.samples import load_samples
from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import recording
from experiments.common.models.speech import (
    LENGTH_S,
    SPANS,
    SPOKEN_MULTILINGUAL,
    SpeechOrNoiseModel,
    spoken_utterances,
    talk,
)
from experiments.faults.oracle import (
    ClientLog,
    ReceivedUpdate,
    Violation,
    final_of,
    live_violations,
    recording_violations,
)
from specwhisper.audio.recording import log_mel_max
from specwhisper.audio.speech import find_voice
from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions, Padding, Task
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE, Mode, Segment
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.codec import config_to_proto
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)
LOG_MEL_MAX = {SpeechOrNoiseModel.num_mel_bins: 1.0}  # scripted models ignore it, so it need not be computed
PIECE_SAMPLES = SAMPLE_RATE // 10


@cache
def recording_file(length_s: float, seed: int, folder: Path, *, is_demo: bool = False) -> Path:
    """Write a recording, once: other clients may be reading it."""
    path = folder / f"{'speech' if is_demo else f'noise-{length_s:g}'}-{seed}.wav"
    pcm = demo_speech(seed) if is_demo else recording(length_s, seed)
    soundfile.write(path, np.frombuffer(pcm, "<i2"), SAMPLE_RATE, subtype="PCM_16")
    return path


async def send_at_pace(stream: StreamingClient, pcm: bytes, speed: float) -> None:
    began_s = monotonic()
    for start in range(0, len(pcm) // 2, PIECE_SAMPLES):
        await asyncio.sleep(max(0.0, began_s + start / SAMPLE_RATE / speed - monotonic()))
        await stream.send(pcm[start * 2 : (start + PIECE_SAMPLES) * 2])
    await stream.finish()


DEMO_TARGET, DEMO_DRAFT = "demo-target", "demo-draft-tiny"
SHORTEST, NUM_JOINED = 5, 3


@cache
def demo_speech(seed: int) -> bytes:
    """Return some of the shorter bundled recordings, joined."""
    return b"".join(sample.pcm for sample in Random(seed).sample(load_samples(None)[:SHORTEST], NUM_JOINED))


@cache
def demo_options(seed: int) -> DecodingOptions:
    """Return decoding options with the recording's log-mel maximum, which no stream can know."""
    return DecodingOptions.greedy(language="en", log_mel_max=log_mel_max([demo_speech(seed)]))


@cache
def demo_segments(seed: int) -> Sequence[Segment]:
    model = WhisperModel(load_checkpoint(DEMO_TARGET), 1)
    return InlinePair(model).transcribe([demo_speech(seed)], demo_options(seed))[0].segments


PLAIN, ZEROS = "plain", "zeros"
OPTIONS = {
    PLAIN: DecodingOptions.greedy(language="en"),
    "detected language": DecodingOptions.greedy(),
    "multilingual": DecodingOptions.greedy(multilingual=True),
    "languages": DecodingOptions.greedy(languages=("de", "en")),
    "translated": DecodingOptions.greedy(language="de", task=Task.TRANSLATE),
    "word times": DecodingOptions.greedy(language="en", word_timestamps=True),
    "invented": DecodingOptions.greedy(
        language="en", word_timestamps=True, hallucination_silence_threshold=1.0
    ),
    "fallback": DecodingOptions.greedy(
        language="en", temperatures=(0.0, 0.5, 1.0), logprob_threshold=-0.45, seed=4
    ),
    "silence": DecodingOptions.greedy(language="en", logprob_threshold=-0.01, no_speech_threshold=0.3),
    "prompts": DecodingOptions.greedy(
        language="en", initial_prompt="abc", hotwords="fg", condition_on_previous_text=True
    ),
    ZEROS: DecodingOptions.greedy(language="en", padding=Padding.ZERO),
    "no timestamps": DecodingOptions.greedy(language="de", timestamps=False, max_new_tokens=9),
}
DEMO = "demo"
STEP_MS = 300
PIECE_BYTES = 32_000
NO_PROXY = ("grpc.enable_http_proxy", 0)
OWN_CONNECTION = (NO_PROXY, ("grpc.use_local_subchannel_pool", 1))
TAKES_LITTLE = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A recording, sent as fast as the server accepts it."""

    length_s: float
    audio_seed: int = 0
    option: str = PLAIN  # a key of OPTIONS, or DEMO for speech that the demo pair transcribes
    mode: Mode | None = Mode.FULL
    gamma: int | None = None
    start_after_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.option}, {self.mode}, {self.length_s:g} s"

    @property
    def options(self) -> DecodingOptions:
        if self.option == DEMO:
            return demo_options(self.audio_seed)
        return replace(OPTIONS[self.option], log_mel_max=LOG_MEL_MAX)

    def file(self, folder: Path) -> Path:
        return recording_file(self.length_s, self.audio_seed, folder, is_demo=self.option == DEMO)

    def expected(self, weights_seed: int = 0) -> Sequence[Segment]:
        if self.option == DEMO:
            return demo_segments(self.audio_seed)
        return _expected_segments(self.option, self.length_s, self.audio_seed, weights_seed)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """Live audio, sent at ``speed`` times real time."""

    mode: Mode = Mode.FULL
    has_utterances: bool = True  # pauses end utterances; otherwise all audio is one
    continue_unverified: bool = False
    start_after_s: float = 0.0
    speed: float = 4.0
    spans_s: tuple[tuple[float, float], ...] = SPANS
    length_s: float = LENGTH_S

    def __str__(self) -> str:
        draft_only = ", draft-only in outages" if self.continue_unverified else ""
        return f"live, {self.mode}{draft_only}"

    @property
    def pcm(self) -> bytes:
        return talk(self.spans_s, self.length_s)

    @property
    def expected(self) -> dict[int, list[int]]:
        words = spoken_utterances(self.pcm)
        return words if self.has_utterances else {1: [word for of_one in words.values() for word in of_one]}


Request = FileRequest | LiveRequest


@dataclass(eq=False, slots=True)
class Client:
    request: Request
    folder: Path  # holds the recordings
    restarts: bool = False  # it starts again if it finds no server before its first update, as people do
    resume_timeout_s: float = 60.0  # for which a recording looks for a server; 0 fails at the first refusal
    log: ClientLog = field(init=False)
    began_s: float = 0.0
    mode: Mode | None = None  # the mode in which the server says a recording ended
    num_restarts: int = 0
    num_resumes: int = 0  # sessions continued in another call, with attempts

    def __post_init__(self) -> None:
        self.log = ClientLog(str(self.request))

    @property
    def has_begun(self) -> bool:
        """Whether the target has committed tokens, or the client has ended."""
        return bool(self.log.progress_s) or self.log.ended_s is not None

    @property
    def took_s(self) -> float:
        return (self.log.ended_s or inf) - self.began_s

    def violations(self) -> list[Violation]:
        if isinstance(self.request, FileRequest):
            return recording_violations(self.log, self.request.expected())
        return live_violations(self.log, self.request.expected)

    def has_text_of(self, weights_seed: int) -> bool:
        """Whether it ended well with the text that a target of these weights writes alone."""
        expected = list(map(final_of, self.request.expected(weights_seed)))
        return self.log.error is None and list(map(final_of, self.log.segments)) == expected

    async def run(self, server: str | TranscriptionClient) -> None:
        await asyncio.sleep(self.request.start_after_s)
        self.began_s = monotonic()
        try:
            while not await self._has_ended(server):
                self.num_restarts += 1
                await asyncio.sleep(0.1)
        except SpecWhisperError as error:
            self.log.error = f"{type(error).__name__}: {error}"
        finally:
            self.log.ended_s = monotonic()

    async def _has_ended(self, server: str | TranscriptionClient) -> bool:
        try:
            if isinstance(self.request, FileRequest):
                await self._transcribe(self.request, server)
            else:
                await self._speak(self.request, str(server))
        except TargetUnavailable:
            if self.log.updates or not self.restarts:
                raise
            return False
        return True

    async def _transcribe(self, request: FileRequest, server: str | TranscriptionClient) -> None:
        if isinstance(server, str):
            connections: Any = TranscriptionClient(server, resume_timeout_s=self.resume_timeout_s)
        else:
            connections = nullcontext(server)
        async with connections as client:
            updates = client.stream_file(
                request.file(self.folder),
                request.options,
                mode=request.mode,
                gamma=request.gamma,
                with_statistics=True,
            )
            try:
                async for update in updates:
                    self._note(update)
                self.mode = updates.result.model.mode
            finally:
                self.num_resumes += updates.num_resumes

    async def _speak(self, request: LiveRequest, address: str) -> None:
        async with StreamingClient(
            address,
            DecodingOptions.greedy(language="en"),
            live=LiveOptions(step_ms=STEP_MS),
            endpointing=EndpointingOptions() if request.has_utterances else None,
            mode=request.mode,
            continue_unverified=request.continue_unverified,
            with_statistics=True,
        ) as stream:
            speaking = asyncio.create_task(send_at_pace(stream, request.pcm, request.speed))
            try:
                async with aclosing(aiter(stream)) as updates:
                    async for update in updates:
                        self._note(update)
            finally:
                self.num_resumes += stream.num_reconnects
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    def _note(self, update: Update) -> None:
        num_committed = self.log.updates[-1].num_committed if self.log.updates else 0
        if update.statistics is not None:
            num_committed = update.statistics.num_committed
        self.log.updates.append(
            ReceivedUpdate(monotonic(), update.segments, num_committed, update.received_s)
        )


def violations_of(clients: Iterable[Client]) -> list[str]:
    return [f"{client.log.name}: {violation}" for client in clients for violation in client.violations()]


async def all_begun(clients: Sequence[Client]) -> None:
    while not all(client.has_begun for client in clients):
        await asyncio.sleep(0.005)


async def run_all(clients: Sequence[Client], server: str | TranscriptionClient) -> Sequence[Client]:
    await asyncio.gather(*(client.run(server) for client in clients))
    return clients


def recorded(
    num: int, length_s: float, folder: Path, *, mode: Mode | None = Mode.FULL, **settings: Any
) -> list[Client]:
    requests = (FileRequest(length_s, number % 3, mode=mode) for number in range(num))
    return [Client(request, folder, **settings) for request in requests]


@cache
def _expected_segments(option: str, length_s: float, seed: int, weights_seed: int) -> Sequence[Segment]:
    model = SpeechOrNoiseModel(vocabulary=SPOKEN_MULTILINGUAL, seed=weights_seed)
    options = replace(OPTIONS[option], log_mel_max=LOG_MEL_MAX)
    alone = InlinePair(model, voice=find_voice())
    return alone.transcribe([recording(length_s, seed)], options)[0].segments


def check_text(text: str, request: FileRequest) -> None:
    expected = "".join(segment.text for segment in request.expected()).strip()
    if text != expected:
        raise AssertionError(f"wrote {text!r} and not {expected!r}")


async def upload(gateway: str, length_s: float, folder: Path) -> None:
    """Transcribe a recording over HTTP; raise unless the text is the target's."""
    request = FileRequest(length_s, option=ZEROS)  # with which a gateway pads
    async with openai.AsyncOpenAI(base_url=f"http://{gateway}/v1", api_key="any", max_retries=0) as api:
        file = ("speech.wav", request.file(folder).read_bytes())
        reply = await api.audio.transcriptions.create(file=file, model="whisper-1", language="en")
    check_text(reply.text, request)


def first_request(mode: Mode | None = None) -> pb.StreamingRecognizeRequest:
    options = replace(OPTIONS[PLAIN], log_mel_max=LOG_MEL_MAX)
    config = config_to_proto(options, mode, None, is_container=False)
    streaming = pb.StreamingRecognitionConfig(config=config, interim_results=True)
    return pb.StreamingRecognizeRequest(streaming_config=streaming)


@asynccontextmanager
async def bare_call(
    address: str,
    mode: Mode | None = None,
    *,
    length_s: float = 0.0,
    reads: bool = True,
    options: tuple[tuple[str, int], ...] = (),
) -> AsyncIterator[Any]:
    """Open a call over a connection of its own, send a recording into it, and read the answers or not."""
    async with grpc.aio.insecure_channel(address, options=(*OWN_CONNECTION, *options)) as channel:
        call = with_true_status(TranscriptionStub(channel).StreamingRecognize())
        await call.write(first_request(mode))

        async def send() -> None:
            pcm = recording(length_s)
            for start in range(0, len(pcm), PIECE_BYTES):
                await call.write(pb.StreamingRecognizeRequest(audio_content=pcm[start : start + PIECE_BYTES]))

        tasks = [asyncio.create_task(send())] + ([asyncio.create_task(status_of(call))] if reads else [])
        try:
            yield call
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def status_of(call: Any) -> tuple[grpc.StatusCode, dict[str, str]]:
    """Read a call to its end; return its status and trailing metadata."""
    with suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    trailing = await call.trailing_metadata() or ()
    return await call.code(), {key: str(value) for key, value in trailing}
