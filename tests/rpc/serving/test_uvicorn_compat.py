"""Uvicorn has the undocumented parts that the HTTP servers build on."""

from __future__ import annotations

import uvicorn

from specwhisper.rpc import uvicorn_compat
from specwhisper.rpc.uvicorn_compat import H11Protocol, ServerState
from specwhisper_gateway.transport import uvicorn_sockets_compat
from specwhisper_gateway.transport.uvicorn_sockets_compat import WebSocketsSansIOProtocol


def test_uvicorn_has_the_tested_release():
    """Run the tests of the gateway and of the metrics with a new release, then name it in the module."""
    assert uvicorn.__version__.rpartition(".")[0] == uvicorn_compat.UVICORN


async def test_connections_have_what_subclasses_use():
    state = ServerState()
    assert not state.connections and not state.tasks
    config = uvicorn.Config(lambda: None, ws="websockets-sansio", log_config=None)
    config.load()
    http = H11Protocol(config=config, server_state=state, app_state={})
    socket = WebSocketsSansIOProtocol(config=config, server_state=state, app_state={})
    for made, names in (
        (http, uvicorn_compat.HTTP_ATTRIBUTES + uvicorn_compat.HTTP_METHODS),
        (socket, uvicorn_sockets_compat.SOCKET_ATTRIBUTES + uvicorn_sockets_compat.SOCKET_METHODS),
    ):
        assert [name for name in names if not hasattr(made, name)] == []
