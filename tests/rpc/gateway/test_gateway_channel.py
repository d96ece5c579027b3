"""All sessions of a gateway share a few connections to its draft servers."""

import json

from specwhisper_client.servers import CONNECTIONS
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for, messages_of, page
from tests.rpc.live_scripts import EVERYTHING
from tests.rpc.realtime import MANUAL, PCM, session, turn


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


async def test_all_sessions_share_the_connections():
    server = Peers(EVERYTHING)
    async with gateway_for(server) as gateway:
        await gateway.transcribe()
        async with session(gateway) as connection:
            await connection.session.update(session=MANUAL)
            for _ in range(3):
                await turn(connection)
        async with page(gateway) as socket:
            await socket.send(PCM)
            await socket.send(json.dumps({"type": "finish"}))
            assert (await messages_of(socket))[0][-1]["type"] == "done"
        await gateway.all_answered()
        assert 1 < len(server.peers) <= CONNECTIONS, "six sessions share the connections"
