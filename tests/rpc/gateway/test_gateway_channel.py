"""All sessions of a gateway share a few connections to its draft servers."""

import base64
import json

import websockets

from specwhisper_client.servers import CONNECTIONS
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for
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
