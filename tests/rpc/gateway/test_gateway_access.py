"""Every path of a gateway needs a key, with a few named exceptions."""

from collections.abc import Iterator
from typing import Any

import pytest
import websockets

from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway.refusals import OPEN_TO_ALL
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import MODEL, RunningGateway, gateway_for, socket_refusal

TOKEN, OTHER = "0123456789abcdef-Right", "another-token-of-hers"
TOKENS = Tokens({TOKEN: "anna", OTHER: "anna"})
OPEN = ["/", "/health", "/health/live", "/page/{name}", "/samples", "/samples/{name}.wav"]
SOCKETS = ["/live", "/v1/realtime"]
OTHERS = ["/nowhere", "/.//health", "/health/live/", "/page/", "/page/a/b", "/page/..%2flive"]
SHOWN = {"none": None, "no scheme": TOKEN, "prefix": f"Bearer {TOKEN[:-1]}", "other scheme": f"Basic {TOKEN}"}


def routes_of(router: Any) -> Iterator[Any]:
    for route in router.routes:
        within = getattr(route, "original_router", None)
        yield from [route] if within is None else routes_of(within)


def paths_of(gateway: RunningGateway) -> dict[str, set[str]]:
    """Return every path of a gateway with its methods; a WebSocket has none."""
    app = gateway.server.app
    return {route.path: getattr(route, "methods", None) or set() for route in routes_of(app)}


def filled(path: str) -> str:
    values = {"{name}.wav": "01_phone_call.wav", "{name}": "main.js", "{model:path}": MODEL}
    for name, value in values.items():
        path = path.replace(name, value)
    return path


def is_refusal(reply: Any, method: str) -> bool:
    code = None if method == "HEAD" else reply.json()["error"]["code"]
    is_named = (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    return is_named and code in (None, "invalid_api_key")


async def test_requests_without_a_valid_key_are_refused():
    server = ScriptedTranscription()
    async with gateway_for(server, tokens=TOKENS) as gateway:
        paths = paths_of(gateway)
        assert {path for path in paths if OPEN_TO_ALL.fullmatch(filled(path))} == set(OPEN)
        sockets = {path for path, methods in paths.items() if not methods and path.startswith(tuple(SOCKETS))}
        assert sockets == set(SOCKETS)
        closed = [
            (method, filled(path))
            for path, methods in paths.items()
            for method in methods or {"GET"}
            if path not in OPEN
        ]
        assert len(closed) >= 11  # recordings, models, live audio, metrics, the page of the API ...
        closed += [("POST", path) for path in OTHERS]
        for header in SHOWN.values():
            headers = {} if header is None else {"Authorization": header}
            for method, path in closed:
                reply = await gateway.http.request(method, path, headers=headers)
                assert is_refusal(reply, method), (method, path, header, reply.status_code)
            for path in OPEN:
                assert (await gateway.http.get(filled(path), headers=headers)).status_code == 200
        num_errors = (await gateway.figures(TOKEN))['errors_total{kind="WrongApiKey"}']
    assert num_errors == len(SHOWN) * len(closed)
    assert server.config is None


@pytest.mark.parametrize("path", SOCKETS)
async def test_every_websocket_needs_a_key(path):
    async with gateway_for(tokens=TOKENS) as gateway:
        url = f"ws://{gateway.server.address}{path}?intent=transcription"
        offers: list[dict[str, Any]] = [
            {"additional_headers": {} if header is None else {"Authorization": header}}
            for header in SHOWN.values()
        ]
        wrong = (TOKEN, f"openai-insecure-api-key.{TOKEN[:-1]}", "realtime-token.ek_x")
        offers += [{"subprotocols": ["realtime", shown]} for shown in wrong]
        for offer in offers:
            error, code = await socket_refusal(url, **offer)
            assert (error["code"], code) == ("invalid_api_key", 1008), offer
        assert gateway.num_sessions == 0
        key = f"openai-insecure-api-key.{TOKEN}"
        origin = {"origin": "https://my.app"} if path == "/v1/realtime" else {}
        for good in (
            {"subprotocols": ["realtime", key]} | origin,
            {"additional_headers": {"Authorization": f"bearer {OTHER}"}},
        ):
            async with websockets.connect(url, **good) as socket:
                assert socket.subprotocol in ("realtime", None)
        nowhere = f"ws://{gateway.server.address}/nowhere"
        assert (await socket_refusal(nowhere))[0]["code"] == "invalid_api_key"
        with pytest.raises(websockets.InvalidStatus, match="403"):
            async with websockets.connect(nowhere, subprotocols=[key]):
                pass


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 200),  # this machine only
        ({"host": "0.0.0.0", "insecure": True}, 404),
        ({"host": "0.0.0.0", "insecure": True, "tokens": TOKENS}, 200),  # for callers with a key
    ],
)
async def test_descriptions_of_the_gateway_need_a_key(settings, status):
    async with gateway_for(**settings) as gateway:
        port = gateway.server.address.rpartition(":")[2]
        for path in ("/docs", "/openapi.json", "/metrics"):
            url = f"http://127.0.0.1:{port}{path}"
            assert (
                await gateway.http.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
            ).status_code == status
