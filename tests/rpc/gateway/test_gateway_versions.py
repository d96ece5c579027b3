"""Clients, gateways and draft servers refuse each other's unknown protocols."""

import pytest

from specwhisper import __version__
from specwhisper.errors import PairMismatch
from specwhisper.wire import CLIENT_PROTOCOL_VERSION
from specwhisper_client import codec
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.streaming import StreamingClient
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import WAV, gateway_for
from tests.rpc.realtime import refusal
from tests.rpc.services import all_free, running_pair

NEWER = CLIENT_PROTOCOL_VERSION + 1
OWN = f"(specwhisper {__version__}) speaks {CLIENT_PROTOCOL_VERSION}: install the same version on both."


class Newer(ScriptedTranscription):
    async def GetModel(self, request, context):
        reply = await super().GetModel(request, context)
        reply.protocol_version = NEWER
        return reply


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "talk.wav"
    path.write_bytes(WAV)
    return path


async def test_a_draft_server_refuses_clients_of_another_protocol(recording, monkeypatch):
    async with running_pair() as (target, draft), TranscriptionClient(draft.address) as client:
        assert (await client.get_model()).software_version == __version__
        await client.transcribe_file(recording)
        monkeypatch.setattr(codec, "CLIENT_PROTOCOL_VERSION", NEWER)
        with pytest.raises(PairMismatch) as whole:
            await client.recognize(recording.read_bytes())
        with pytest.raises(PairMismatch) as streamed:
            await client.transcribe_file(recording)
        with pytest.raises(PairMismatch) as live:
            async with StreamingClient(draft.address) as stream:
                await anext(aiter(stream))
        for refused in (whole, streamed, live):
            said = f"The client (specwhisper {__version__}) speaks protocol {NEWER}, this draft server {OWN}"
            assert str(refused.value) == said
        await all_free(target, draft)


async def test_clients_and_gateways_refuse_draft_servers_of_another_protocol():
    async with gateway_for(Newer()) as gateway:
        address = gateway.server.app.state.gateway.config.server
        said = f"The draft server at {address} (specwhisper 1.2.3) speaks protocol {NEWER}, this client {OWN}"
        async with TranscriptionClient(address) as client:
            with pytest.raises(PairMismatch) as refused:
                await client.get_model()
        assert str(refused.value) == said
        reply = await gateway.http.get("/health")
        assert (reply.status_code, reply.json()["error"]["message"]) == (500, said)
        error, code = await refusal(gateway)
        assert (error.message, code) == (said, 1011)
