"""Only pages of allowed sites may use a gateway over HTTP and WebSockets."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import websockets
from starlette.requests import HTTPConnection

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.errors import ForeignPage
from specwhisper_gateway.sockets import check_origin_without_keys
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import MODEL, RECORDING, gateway_for, running_gateway

SHOP, OTHER = "https://shop.example", "https://elsewhere.example"
FORM = {"data": {"model": MODEL}, "files": {"file": RECORDING}}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
TRANSCRIPTIONS = "/v1/audio/transcriptions"
ALLOWED = "access-control-allow-origin"
SOCKETS = ["/live", "/v1/realtime?intent=transcription"]


@pytest.mark.parametrize(("api_key", "allowed"), [(None, SHOP), ("right", SHOP), ("right", "*")])
async def test_an_allowed_page_sends_a_recording_and_reads_the_answer(api_key, allowed):
    async with gateway_for(api_key=api_key, allow_origins=(allowed,)) as gateway:
        asked = await gateway.http.options(TRANSCRIPTIONS, headers={"Origin": SHOP} | PREFLIGHT)
        assert (asked.status_code, asked.headers[ALLOWED]) == (200, allowed)
        assert asked.headers["access-control-allow-headers"] == "authorization"
        headers = {"Origin": SHOP, "Authorization": "Bearer right"}
        reply = await gateway.http.post(TRANSCRIPTIONS, headers=headers, **FORM)
        assert (reply.status_code, reply.headers[ALLOWED]) == (200, allowed)
        assert "x-request-id" in reply.headers["access-control-expose-headers"]


async def test_an_allowed_page_reads_an_error():
    async with running_gateway("127.0.0.1:1", api_key="right", allow_origins=(SHOP,)) as gateway:
        reply = await gateway.http.get("/v1/models", headers={"Origin": SHOP})
    assert (reply.status_code, reply.headers[ALLOWED]) == (401, SHOP)


@pytest.mark.parametrize("origins", [(), (SHOP,)])
async def test_other_pages_read_nothing(origins):
    server = ScriptedTranscription()
    async with gateway_for(server, allow_origins=origins) as gateway:
        asked = await gateway.http.options(TRANSCRIPTIONS, headers={"Origin": OTHER} | PREFLIGHT)
        assert asked.status_code >= 400
        assert ALLOWED not in asked.headers
        reply = await gateway.http.post(TRANSCRIPTIONS, headers={"Origin": OTHER}, **FORM)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "foreign_page")
        assert ALLOWED not in reply.headers
    assert server.config is None


@pytest.mark.parametrize("path", SOCKETS)
async def test_websockets_use_the_same_origins(path):
    async with gateway_for(allow_origins=(SHOP,)) as gateway:
        url = f"ws://{gateway.server.address}{path}"
        async with websockets.connect(url, origin=SHOP) as socket:
            await socket.send(json.dumps({"type": "start", "sample_rate": 16_000}))
            await socket.send(json.dumps({"type": "finish"}))
            assert json.loads(await socket.recv())["type"] in ("ready", "session.created")
        with pytest.raises(websockets.InvalidStatus, match="403"):
            async with websockets.connect(url, origin=OTHER):
                pass
        figures = await gateway.figures()
    route = path.partition("?")[0]
    assert figures[f'sessions_total{{code="403",route="{route}"}}'] == 1


@pytest.mark.parametrize(
    "origin", ["*", "shop.example", "https://shop.example/", "https://Shop.example", "null", "", "https://*"]
)
def test_invalid_origins_are_refused_at_the_start(origin):
    with pytest.raises(InvalidRequest, match="allow_origins is "):
        GatewayConfig(allow_origins=(origin,))


@pytest.mark.parametrize(
    "origin", ["https://shop.example:8443", "http://[::1]:8000", "http://localhost", "chrome-extension://abc"]
)
def test_valid_origins(origin):
    assert GatewayConfig(allow_origins=(origin,)).allows(origin)
    assert GatewayConfig(allow_origins=("*",), tokens=Tokens({"0123456789abcdef": "anna"})).allows(origin)


@pytest.mark.parametrize(
    ("host", "origin", "is_allowed"),
    [
        ("127.0.0.1:1", "https://elsewhere.example", False),
        ("127.0.0.1:1", "null", False),
        ("127.0.0.1:1", "http://[", False),
        ("localhost:1", "http://localhost:1", True),
        ("[::1]:1", "http://[::1]:1", True),
        ("localhost:1", "http://localhost:2", False),
        pytest.param("rebound.example:1", "http://rebound.example:1", False, id="DNS rebinding"),
    ],
)
@pytest.mark.parametrize("tokens", [None, Tokens({"0123456789abcdef": "anna"})], ids=["open", "keys"])
async def test_pages_of_other_sites_need_the_key(host, origin, is_allowed, tokens):
    gateway = SimpleNamespace(config=GatewayConfig(tokens=tokens))
    headers = [(b"host", host.encode()), (b"origin", origin.encode())]
    app = SimpleNamespace(state=SimpleNamespace(gateway=gateway))
    connection = HTTPConnection({"type": "http", "headers": headers, "app": app})
    with nullcontext() if is_allowed or tokens else pytest.raises(ForeignPage):
        await check_origin_without_keys(connection)


async def test_the_pages_socket_is_for_its_own_page_alone():
    async with gateway_for(api_key="right") as gateway:
        url = f"ws://{gateway.server.address}/live"
        protocols = ["specwhisper.live", "openai-insecure-api-key.right"]
        with pytest.raises(websockets.InvalidStatus, match="403"):
            async with websockets.connect(url, subprotocols=protocols, origin=OTHER):
                pass
        async with websockets.connect(url, subprotocols=protocols, origin=gateway.url) as socket:
            assert socket.subprotocol == "specwhisper.live"
