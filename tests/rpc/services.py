"""Run real servers on free ports, with scripted models or a test's own."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
import soundfile

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import ScriptedModel, recording, scripted_checkpoint
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import Credentials, open_channel, with_true_status
from specwhisper.rpc.serving import AddServicer, RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tokens import Leases
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Limits
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.draft_source import LoadDraft
from specwhisper_draft_server.drafting import PlaceDraft
from specwhisper_draft_server.server import SERVICE_NAME as TRANSCRIPTION
from specwhisper_draft_server.server import running_service as running_draft
from specwhisper_draft_server.server import services_of
from specwhisper_draft_server.service import TranscriptionService
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import SERVICE_NAME as VERIFICATION
from specwhisper_target_server.server import running_service as running_target
from specwhisper_target_server.service import VerificationService

RATE = 16_000
MAX_SESSIONS = 8
MODES = ("MODE_TARGET_ONLY", "MODE_SYNC", "MODE_PIPELINED", "MODE_FULL")
SMALL_BUFFERS = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))  # of a gRPC channel
PROMPTLY_S = 15.0  # much less than any timeout of a server


@cache
def target_alone(length_s: float, audio_seed: int = 0, model_seed: int = 0) -> Transcription:
    """Return the target-only text of the scripted target of :func:`running_pair`."""
    options = DecodingOptions.greedy()
    return InlinePair(ScriptedModel(seed=model_seed)).transcribe([recording(length_s, audio_seed)], options)[
        0
    ]


def wav(path: Path, pcm: bytes) -> Path:
    """Write a recording."""
    soundfile.write(path, np.frombuffer(pcm, "<i2"), RATE, subtype="PCM_16")
    return path


def slowed(model: Model, step_s: float = 0.002) -> Model:
    """Let each forward pass of a model take longer; by default just so that commits arrive one by one."""
    score = model.score

    def slowly(rows):
        time.sleep(step_s)
        return score(rows)

    model.score = slowly
    return model


class Addressed:
    """A server with an address."""

    server: RunningServer

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def port(self) -> int:
        return split_address(self.address)[1]


@dataclass(frozen=True)
class Target(Addressed):
    service: VerificationService
    server: RunningServer
    stub: verification_pb2_grpc.VerificationStub

    @property
    def num_free_slots(self) -> int:
        return self.service._verifier.num_free_slots


@dataclass(frozen=True)
class Draft(Addressed):
    service: TranscriptionService
    server: RunningServer
    channel: grpc.aio.Channel
    stub: transcription_pb2_grpc.TranscriptionStub


@asynccontextmanager
async def running(
    services: dict[str, AddServicer], options: ServingOptions | None = None, *more
) -> AsyncIterator[RunningServer]:
    server = await start_server(services, options or ServingOptions(), *more)
    try:
        yield server
    finally:
        await server.stop(drain_timeout_s=0)


def as_target(
    servicer: verification_pb2_grpc.VerificationServicer, *more
) -> AbstractAsyncContextManager[RunningServer]:
    """Run a servicer in the place of a target."""
    add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, servicer)
    return running({VERIFICATION: add}, *more)


def as_draft_server(
    servicer: transcription_pb2_grpc.TranscriptionServicer, *more
) -> AbstractAsyncContextManager[RunningServer]:
    """Run a servicer in the place of a draft server."""
    add = partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, servicer)
    return running({TRANSCRIPTION: add}, *more)


@asynccontextmanager
async def target_server(
    model: Model | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    limits: Limits | None = None,
    leases: Leases | None = None,
    port: int = 0,
    reports_engine_health: bool = False,
    **settings,
) -> AsyncIterator[Target]:
    """Run a target with a scripted model, or with a checkpoint."""
    limits = limits or Limits(max_sessions=MAX_SESSIONS)
    config = TargetConfig(limits=limits, port=port, max_message_bytes=limits.max_message_bytes, **settings)
    if checkpoint is None:
        checkpoint, model = scripted_checkpoint(), model or ScriptedModel(limits.max_sessions)
    async with running_target(config, checkpoint, model, leases) as service:
        check = service.check_health if reports_engine_health else None
        async with (
            as_target(service, config, service.metrics, check) as server,
            open_channel(server.address) as channel,
        ):
            yield Target(service, server, verification_pb2_grpc.VerificationStub(channel))


@asynccontextmanager
async def draft_server(
    target: str,
    model: Model | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    drafts: bool = True,
    place: PlaceDraft | None = None,
    load_draft: LoadDraft | None = None,
    reports_engine_health: bool = False,
    **settings,
) -> AsyncIterator[Draft]:
    """Run a draft server with a mostly right scripted model, or with a checkpoint."""
    if checkpoint is None and load_draft is None and drafts:
        checkpoint = scripted_checkpoint("scripted-draft")
        model = model or ScriptedModel(MAX_SESSIONS, error_rate=0.2)
    if model is not None and place is None:
        place = lambda _: model  # noqa: E731
    defaults = {
        "target": target,
        "connect_timeout_s": 20.0,
        "max_sessions": MAX_SESSIONS,
        "port": 0,
    }
    config = DraftConfig(**(defaults | settings))
    async with running_draft(config, checkpoint, place, load_draft) as service:
        check = service.check_health if reports_engine_health else None
        async with (
            running(services_of(service, config), config, service.metrics, check) as server,
            open_channel(server.address) as channel,
        ):
            yield Draft(service, server, channel, transcription_pb2_grpc.TranscriptionStub(channel))


@asynccontextmanager
async def callers(server: Any, *tokens: str) -> AsyncIterator[list[Any]]:
    """Yield a server for each caller, over a connection with the caller's token."""
    async with AsyncExitStack() as stack:
        connections = [open_channel(server.address, Credentials(token=token)) for token in tokens]
        channels = [await stack.enter_async_context(each) for each in connections]
        yield [replace(server, stub=type(server.stub)(channel)) for channel in channels]


@asynccontextmanager
async def running_pair(**settings) -> AsyncIterator[tuple[Target, Draft]]:
    """Run a scripted target and a draft server for it."""
    async with target_server() as target, draft_server(target.address, **settings) as draft:
        yield target, draft


def streaming_config(*, interim: bool = False, decoding=None, **config) -> pb.StreamingRecognizeRequest:
    """Return the first message: greedy decoding of 16-bit samples, unless the caller says otherwise."""
    config = {"encoding": "AUDIO_ENCODING_LINEAR16", "sample_rate_hertz": RATE, **config}
    config["decoding"] = {"greedy": True} if decoding is None else decoding
    return pb.StreamingRecognizeRequest(
        streaming_config=pb.StreamingRecognitionConfig(
            config=pb.RecognitionConfig(**config), interim_results=interim
        )
    )


def whole_request(pcm: bytes, **config: Any) -> pb.RecognizeRequest:
    """Return a whole recording in one message."""
    linear = {"encoding": "AUDIO_ENCODING_LINEAR16", "sample_rate_hertz": RATE}
    return pb.RecognizeRequest(config=pb.RecognitionConfig(**linear | config), audio=pcm)


def opening(*, sample_rate_hertz: int = RATE, **settings) -> pb.StreamingRecognizeRequest:
    """Return the first message of a recording in English, with settings of the stream."""
    request = streaming_config(
        sample_rate_hertz=sample_rate_hertz, decoding={"languages": ["en"], "greedy": True}
    )
    request.streaming_config.MergeFrom(pb.StreamingRecognitionConfig(**settings))
    return request


async def resume_point_of(draft: Draft) -> pb.ResumePoint:
    """Return the resume point after the first text of a recording."""
    requests = [opening(with_resume_points=True), *audio_requests(recording(40.0))]
    call = draft.stub.StreamingRecognize(iter(requests))
    async for response in call:
        if response.HasField("resume_point"):
            call.cancel()
            return response.resume_point
    raise AssertionError("no resume point was sent")


def audio_requests(pcm: bytes, piece_bytes: int = 32_000) -> list[pb.StreamingRecognizeRequest]:
    return [
        pb.StreamingRecognizeRequest(audio_content=pcm[start : start + piece_bytes])
        for start in range(0, len(pcm), piece_bytes)
    ]


async def responses_to(
    draft: Draft, *requests: pb.StreamingRecognizeRequest
) -> list[pb.StreamingRecognizeResponse]:
    """Return all responses to the messages of a streaming call."""
    return [each async for each in with_true_status(draft.stub.StreamingRecognize(iter(requests)))]


async def stream(draft: Draft, pcm: bytes, **config) -> list[pb.StreamingRecognizeResponse]:
    """Transcribe a recording over the streaming call."""
    return await responses_to(draft, streaming_config(**config), *audio_requests(pcm))


def finals(responses: Sequence[pb.StreamingRecognizeResponse | pb.RecognizeResponse]) -> list[tuple]:
    """Return time, tokens and text of every final result, in order."""
    return [
        (
            round(result.start_offset.ToNanoseconds() / 1e9, 2),
            round(result.end_offset.ToNanoseconds() / 1e9, 2),
            tuple(result.alternatives[0].tokens),
            result.alternatives[0].transcript,
        )
        for response in responses
        for result in response.results
        if result.is_final
    ]


def expected_finals(transcript: Transcription) -> list[tuple]:
    return [(s.start_s, s.end_s, s.tokens, s.text) for s in transcript.segments]


async def check_text(
    draft: Draft, length_s: float = 1.0, seed: int = 0, **config
) -> list[pb.StreamingRecognizeResponse]:
    """Transcribe a recording; its text must be that of the target alone."""
    responses = await stream(draft, recording(length_s, seed), **config)
    assert finals(responses) == expected_finals(target_alone(length_s, seed))
    return responses


class HalfSent:
    """A recording of which a client sends a part, and the rest on ``end`` or ``rest``."""

    def __init__(
        self,
        draft: Draft,
        mode: str = "MODE_FULL",
        seed: int = 0,
        length_s: float = 65.0,
        begun_s: float = 35.0,
        **config: Any,
    ) -> None:
        self.pcm, self._begun = recording(length_s, seed), round(begun_s * RATE) * 2
        self._recording = length_s, seed
        self.call = with_true_status(draft.stub.StreamingRecognize())
        self.responses: list[pb.StreamingRecognizeResponse] = []
        self._config = {"mode": mode} | config

    async def begin(self) -> None:
        """Send the first part, and wait for its first final text."""
        for request in (streaming_config(**self._config), *audio_requests(self.pcm[: self._begun])):
            await self.call.write(request)
        while not finals(self.responses):
            self.responses.append(await self.call.read())

    async def end(self) -> list[pb.StreamingRecognizeResponse]:
        """Send the rest; the text must be that of the scripted target alone."""
        responses = await self.rest()
        assert finals(responses) == expected_finals(target_alone(*self._recording))
        return responses

    async def rest(self) -> list[pb.StreamingRecognizeResponse]:
        """Send the rest; return all responses."""
        for request in audio_requests(self.pcm[self._begun :]):
            await self.call.write(request)
        await self.call.done_writing()
        self.responses += await rest_of(self.call)
        return self.responses


def check_statistics(
    statistics: pb.SpeculationStatistics | SpeculationStatistics, transcript: Transcription
) -> None:
    """Check that a session's counts agree with each other and the text."""
    if isinstance(statistics, pb.SpeculationStatistics):
        statistics = statistics_from_proto(statistics)
    assert statistics.num_committed == sum(map(len, transcript.window_tokens))
    assert statistics.num_windows == len(transcript.window_tokens)
    assert statistics.num_accepted <= statistics.num_verified <= statistics.num_drafted
    num_decoding = statistics.num_forwards - bool(transcript.language_probs)  # one detected the language
    with_candidates = num_decoding - statistics.num_self_decoded
    drafted = sum(statistics.acceptance_histogram)
    assert drafted == with_candidates if not statistics.num_hinted else drafted <= with_candidates
    accepted = sum(n * passes for n, passes in enumerate(statistics.acceptance_histogram))
    assert accepted == statistics.num_accepted
    # Each forward pass appends accepted tokens and one of its own, unless it ends on a candidate.
    kept = statistics.num_accepted + statistics.num_hinted_accepted
    assert statistics.num_committed <= kept + num_decoding


def count_locate_calls(target: Target, monkeypatch: pytest.MonkeyPatch) -> list:
    """Return a list that grows with each Locate call of a target."""
    asked, locate = [], target.service.locate

    async def counted(*args):
        asked.append(args)
        return await locate(*args)

    monkeypatch.setattr(target.service, "locate", counted)
    return asked


async def error_of(call) -> Exception:
    """Return the error of a call, as a client restores it."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    return error_from_rpc(ended.value, "the server")


async def refusal(draft: Draft, *requests: pb.StreamingRecognizeRequest) -> Exception:
    """Return the error of a streaming call with these messages."""
    return await error_of(with_true_status(draft.stub.StreamingRecognize(iter(requests))))


async def rest_of(call) -> list:
    """Return what a call sends until its end."""
    responses = []
    while (response := await call.read()) is not grpc.aio.EOF:
        responses.append(response)
    return responses


def is_one_sentence(error: Exception) -> bool:
    text = str(error)
    return text[-1] in ".?" and "\n" not in text and "Traceback" not in text


def check_error(error: Exception, kind: type[Exception], words: str) -> None:
    """Check the class of an error, and that it is one sentence with a pattern of words."""
    assert type(error) is kind
    assert is_one_sentence(error)
    assert re.search(words, str(error)), error


async def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.002)


async def all_free(target: Target, draft: Draft | None = None) -> None:
    """Wait until every slot is free."""
    await eventually(lambda: target.num_free_slots == MAX_SESSIONS, within_s=PROMPTLY_S)
    if draft is not None:
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        if (drafter := getattr(draft.service._drafting, "drafter", None)) is not None:
            await eventually(lambda: drafter.num_free_slots == MAX_SESSIONS, within_s=PROMPTLY_S)
