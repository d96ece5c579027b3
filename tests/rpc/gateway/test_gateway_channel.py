"""All sessions of a gateway share a few connections to its draft servers."""

import base64
import gc
import json

import grpc.aio
import websockets

from specwhisper_client.api import TranscriptionClient
from specwhisper_client.servers import CONNECTIONS
from specwhisper_client.streaming import StreamingClient
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import gateway_for, running_gateway
from tests.rpc.live_scripts import EVERYTHING

PCM = bytes(9_600)
COMPLETED = "conversation.item.input_audio_transcription.completed"
MANUAL = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}


class Peers(ScriptedTranscription):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.peers: set[str] = set()

    async def StreamingRecognize(self, request_iterator, context):
        self.peers.add(context.peer())
        async for response in super().StreamingRecognize(request_iterator, context):
            yield response

    async def GetModel(self, request, context):
        self.peers.add(context.peer())
        return await super().GetModel(request, context)


async def commit(connection) -> None:
    await connection.input_audio_buffer.append(audio=base64.b64encode(PCM).decode())
    await connection.input_audio_buffer.commit()


def num_alive(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(thing), kind) for thing in gc.get_objects())


async def test_all_sessions_share_the_connections():
    server = Peers(EVERYTHING)
    async with gateway_for(server) as gateway:
        await gateway.transcribe()
        async with gateway.api.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            await connection.session.update(session=MANUAL)
            for _ in range(3):
                await commit(connection)
                while (await connection.recv()).type != COMPLETED:
                    pass
        async with websockets.connect(f"ws://{gateway.server.address}/live") as socket:
            await socket.send(json.dumps({"type": "start", "sample_rate": 16_000}))
            await socket.send(PCM)
            await socket.send(json.dumps({"type": "finish"}))
            while json.loads(await socket.recv())["type"] != "done":
                pass
        await gateway.all_answered()
        assert 1 < len(server.peers) <= CONNECTIONS, "six sessions share the connections"


async def test_another_draft_server_answers_when_one_is_lost(unused_tcp_port, choose_first):
    async with serving(ScriptedTranscription()) as address:
        async with running_gateway(f"127.0.0.1:{unused_tcp_port}, {address}") as gateway:
            assert (await gateway.transcribe()).text
            assert (await gateway.http.get("/health")).status_code == 200


async def test_turns_of_a_lost_client_leave_no_session(monkeypatch):
    monkeypatch.setattr("specwhisper_client.servers.CONNECTIONS", 1)
    server = ScriptedTranscription(EVERYTHING, hangs=True)
    async with gateway_for(server) as gateway:
        await gateway.http.get("/health")
        before = num_alive(grpc.aio.Channel)
        async with gateway.api.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            await connection.session.update(session=MANUAL)
            for _ in range(3):  # one runs, the others wait
                await commit(connection)
            await server.has_read_everything.wait()
        await server.left
        await gateway.all_answered()
        assert num_alive(StreamingClient) == 0
        assert num_alive(grpc.aio.Channel) == before


async def test_a_closed_stream_ends_its_call_and_no_other():
    server = ScriptedTranscription(EVERYTHING, reads_everything=False, hangs=True)
    async with serving(server) as address, TranscriptionClient(address) as client:
        async with StreamingClient(address, servers=client.servers) as stream:
            updates = aiter(stream)
            assert (await anext(updates)).segments
        await server.left
        assert (await client.get_model()).model.target == "large"
        await updates.aclose()
