"""Sessions outlive networks that lose, garble or freeze what they carry."""

import asyncio
from functools import partial

import grpc
import grpc.aio
import pytest

from experiments.common.models.scripted import VOCABULARY
from experiments.common.servers.proxy import Proxy
from specwhisper.engine import verifier
from specwhisper.rpc.channels import keepalive
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.file_transcription import FileTranscription
from tests.interference import KINDS, LOSSY, Interference
from tests.nightly import mostly_nightly
from tests.rpc.gated import Gated
from tests.rpc.network import BadNetwork, between
from tests.rpc.services import (
    MODES,
    all_free,
    check_text,
    draft_server,
    recording,
    target_alone,
    target_server,
    wav,
)

pytestmark = pytest.mark.usefixtures("fast_retries")
SOON = keepalive(1.0, 1.0)
WAIT_S = 30.0  # half of gRPC's own time limit
METHOD = "/test.Echo/Echo"


@pytest.mark.parametrize("kind", mostly_nightly(sorted(KINDS, reverse=True), by_day=3))
async def test_every_mode_writes_the_same_text_under_interference(target, kind):
    interferes = partial(Interference, kind, 7, vocabulary_size=len(VOCABULARY))
    async with (
        between(target.address, BadNetwork, interferes) as (network, _),
        draft_server(network.address) as draft,
    ):
        for mode, gamma in zip(MODES, (1, 3, 5, 16), strict=True):
            await check_text(draft, 33.0, mode=mode, gamma=gamma, interim=True)
        await all_free(target, draft)


async def test_lost_blocks_cost_time_but_no_text(monkeypatch):
    """A target waits for lost candidates for seconds, here for less."""
    monkeypatch.setattr(verifier, "CANDIDATES_TIMEOUT_NS", 200_000_000)
    loses = partial(Interference, LOSSY, 7, vocabulary_size=len(VOCABULARY))
    async with (
        target_server() as target,
        between(target.address, BadNetwork, loses) as (network, _),
        draft_server(network.address) as draft,
    ):
        for mode in MODES:
            responses = await check_text(draft, 1.0, mode=mode, gamma=3)
            if mode in ("MODE_SYNC", "MODE_PIPELINED"):
                assert responses[-1].statistics.num_accepted > 0
            if mode == "MODE_SYNC":
                assert responses[-1].statistics.num_self_decoded > 0  # after the wait for candidates
        await all_free(target, draft)


async def test_a_recording_continues_after_a_garbled_connection_to_its_target(caplog):
    model = Gated()
    async with target_server(model) as target, Proxy.listening() as proxy:
        proxy.upstream = target.address
        async with draft_server(proxy.address) as draft:
            transcribing = asyncio.create_task(check_text(draft, 33.0, mode="MODE_FULL"))
            await asyncio.to_thread(model.is_there.wait)
            proxy.garble()
            model.gate.set()
            await transcribing
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


def echoing(options: list[tuple[str, int]]) -> tuple[grpc.aio.Server, asyncio.Event]:
    """Return a server that echoes messages, and an event set when a call has ended."""
    ended = asyncio.Event()

    async def echo(requests, context):
        try:
            async for request in requests:
                await context.write(request)
        finally:
            ended.set()

    server = grpc.aio.server(options=options)
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    return server, ended


@pytest.mark.parametrize("side", ["server", "client"])
async def test_one_side_notices_that_the_other_has_vanished(side):
    server, ended = echoing(SOON if side == "server" else [])
    async with Proxy.listening() as network:
        network.upstream = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        options = SOON if side == "client" else []
        async with grpc.aio.insecure_channel(network.address, options=options) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(b"here")
            assert await call.read() == b"here"
            network.freeze()
            async with asyncio.timeout(WAIT_S):
                if side == "server":
                    await ended.wait()
                else:
                    assert await call.code() is grpc.StatusCode.UNAVAILABLE
            call.cancel()
    await server.stop(None)
