"""Call our servers with Riva's published client, in threads because it blocks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import riva.client
from riva.client.proto import riva_asr_pb2 as riva_pb

from specwhisper_riva.settings import RivaSettings
from tests.rpc.services import RATE, Draft

LINEAR_PCM = riva.client.AudioEncoding.LINEAR_PCM


class Riva:
    """Riva's ``ASRService`` with awaitable methods."""

    def __init__(self, service: riva.client.ASRService, draft: Draft) -> None:
        self.service, self.draft = service, draft

    async def recognize(self, audio: bytes, config: riva_pb.RecognitionConfig) -> riva_pb.RecognizeResponse:
        return await asyncio.to_thread(self.service.offline_recognize, audio, config)

    async def stream(
        self, chunks: Iterable[bytes], config: riva_pb.StreamingRecognitionConfig
    ) -> list[riva_pb.StreamingRecognizeResponse]:
        return await in_thread(lambda: list(self.service.streaming_response_generator(chunks, config)))

    async def models(self, name: str = "") -> list[riva_pb.RivaSpeechRecognitionConfigResponse.Config]:
        request = riva_pb.RivaSpeechRecognitionConfigRequest(model_name=name)
        response = await asyncio.to_thread(self.service.stub.GetRivaSpeechRecognitionConfig, request)
        return list(response.model_config)


async def in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)


@asynccontextmanager
async def riva_client(draft: Draft) -> AsyncIterator[Riva]:
    auth = riva.client.Auth(uri=draft.address)
    try:
        yield Riva(riva.client.ASRService(auth), draft)
    finally:
        auth.channel.close()


def service_settings(**settings) -> dict[str, Any]:
    """Return settings of a draft server."""
    return {"extras": {"riva": RivaSettings(**settings)}}


def pcm_config(**settings) -> riva_pb.RecognitionConfig:
    return riva_pb.RecognitionConfig(**({"encoding": LINEAR_PCM, "sample_rate_hertz": RATE} | settings))


def live_config(**settings) -> riva_pb.StreamingRecognitionConfig:
    return riva_pb.StreamingRecognitionConfig(config=pcm_config(**settings), interim_results=True)


def pieces(data: bytes, num_bytes: int = 3_200) -> list[bytes]:
    return [data[start : start + num_bytes] for start in range(0, len(data), num_bytes)]


def transcript(results: Sequence) -> str:
    return "".join(result.alternatives[0].transcript for result in results)


async def refusal(call) -> tuple[grpc.StatusCode, str]:
    """Return the status and details that a call ends with."""
    try:
        await call
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("The call was not refused.")
