"""Sessions continue after connections that send a part of a frame, or no HTTP/2."""

import asyncio

import grpc
import pytest

from experiments.common.servers.proxy import Proxy
from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.channels import open_channel
from specwhisper.wire.status import error_from_rpc, has_broken
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.file_transcription import FileTranscription
from tests.rpc.gated import Gated
from tests.rpc.hostile import hello, session
from tests.rpc.services import (
    Target,
    all_free,
    draft_server,
    expected_finals,
    finals,
    recording,
    stream,
    target_alone,
    target_server,
    wav,
)

pytestmark = pytest.mark.usefixtures("fast_retries")


async def test_grpc_reports_garbled_data_as_an_unknown_error():
    """The other tests of this file depend on it."""
    async with target_server() as target, Proxy.listening() as proxy:
        proxy.upstream = target.address
        async with open_channel(proxy.address) as channel:
            through = Target(target.service, target.server, verification_pb2_grpc.VerificationStub(channel))
            async with session(through, hello()) as one:
                await one.read_until("welcome")
                proxy.garble()
                ended = await one.error()
        assert ended.code() is grpc.StatusCode.UNKNOWN
        assert "Stream removed (Failed parsing HTTP/2" in ended.details()
        assert has_broken(ended) and type(error_from_rpc(ended, "it")) is TargetUnavailable
        await all_free(target)


async def test_a_recording_continues_after_a_garbled_connection_to_its_target(caplog):
    model = Gated()
    async with target_server(model) as target, Proxy.listening() as proxy:
        proxy.upstream = target.address
        async with draft_server(proxy.address) as draft:
            transcribing = asyncio.create_task(stream(draft, recording(33.0), mode="MODE_FULL"))
            await asyncio.to_thread(model.is_there.wait)
            proxy.garble()
            model.gate.set()
            assert finals(await transcribing) == expected_finals(target_alone(33.0))
            assert "target lost" in caplog.messages
            await all_free(target, draft)


async def test_a_recording_continues_after_a_garbled_connection_to_its_draft_server(tmp_path):
    model = Gated()
    path = wav(tmp_path / "audio.wav", recording(33.0))
    async with (
        target_server(model) as target,
        draft_server(target.address) as draft,
        Proxy.listening() as proxy,
    ):
        proxy.upstream = draft.address
        async with TranscriptionClient(proxy.address) as client:
            transcription = client.stream_file(path)
            transcribing = asyncio.create_task(_read(transcription))
            await asyncio.to_thread(model.is_there.wait)
            proxy.garble()
            model.gate.set()
            await transcribing
        assert transcription.result.text == target_alone(33.0).text
        assert transcription.num_resumes == 1
        await all_free(target, draft)


async def _read(transcription: FileTranscription) -> None:
    async for _ in transcription:
        pass
