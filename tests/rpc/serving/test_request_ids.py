"""One request id follows a session through every log."""

import io
import json
import logging

import pytest
import websockets

from experiments.common.models.speech import talk
from specwhisper.observe.current_call import VALID
from specwhisper.observe.logs import LogFormat, configure_logging
from specwhisper_gateway import page_files as page
from tests.rpc.gateways import RECORDING, running_gateway
from tests.rpc.network import cut_network
from tests.rpc.speaking import Listener, live_client, speaking_draft, speaking_target


@pytest.fixture
def log():
    """Collect the log lines of all servers, which share this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, stream=stream)
    yield lambda message: [
        line for line in map(json.loads, stream.getvalue().splitlines()) if line["message"] == message
    ]
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize("headers", [{}, {"X-Request-ID": "from-a-proxy.1"}])
async def test_a_request_id_is_in_the_logs_of_all_servers_and_kept_by_a_gateway(draft, log, headers):
    form = {"files": {"file": RECORDING}, "data": {"model": "scripted"}}
    async with running_gateway(draft.address) as gateway:
        reply = await gateway.http.post("/v1/audio/transcriptions", headers=headers, **form)
    shown = reply.headers["x-request-id"]
    assert shown == headers.get("X-Request-ID", shown)
    lines = [line for message in ("answered", "session opened") for line in log(message)]
    assert [line["request"] for line in lines] == [shown] * 3
    of_draft, of_target = sorted(log("session opened"), key=lambda line: line["logger"])
    assert of_target["draft_session"] == of_draft["session"] != of_target["session"]


async def test_a_web_socket_keeps_its_request_id(draft, log):
    async with running_gateway(draft.address) as gateway:
        async with websockets.connect(
            f"ws://{gateway.server.address}/v1/realtime?intent=transcription",
            additional_headers={"X-Request-ID": "from-a-proxy"},
        ) as socket:
            first = json.loads(await socket.recv())
    assert first["type"] == "session.created"
    assert socket.response.headers["x-request-id"] == "from-a-proxy"
    assert [line["request"] for line in log("session ended")] == ["from-a-proxy"]


async def test_a_gateway_replaces_missing_and_invalid_ids():
    async with running_gateway("127.0.0.1:1") as gateway:
        for name in ("", "with spaces", "x" * 65, "a/b", 'a"b', "\xe9"):
            headers = {"X-Request-ID": name.encode("latin-1")}
            shown = (await gateway.http.get("/samples", headers=headers)).headers["x-request-id"]
            assert VALID.fullmatch(shown) and shown != name


async def test_a_web_socket_with_an_unknown_path_is_logged(log):
    async with running_gateway("127.0.0.1:1") as gateway:
        with pytest.raises(websockets.InvalidStatus, match="403"):
            async with websockets.connect(f"ws://{gateway.server.address}/nowhere"):
                pass
    (ended,) = log("session ended")
    assert (ended["route"], ended["code"]) == ("unknown", 403)


async def test_a_failure_of_the_gateway_has_an_id(log, monkeypatch):
    monkeypatch.setattr(page, "samples", lambda: 1 / 0)
    async with running_gateway("127.0.0.1:1") as gateway:
        reply = await gateway.http.get("/samples", headers={"X-Request-ID": "mine"})
    assert (reply.status_code, reply.headers["x-request-id"]) == (500, "mine")


async def test_a_live_stream_keeps_its_id_over_lost_connections(log, energy_vad, fast_retries):
    async with (
        speaking_target() as target,
        cut_network(target.address, [3]) as (network, _),
        speaking_draft(network.address) as draft,
    ):
        async with live_client(draft.address) as client:
            await Listener(client).end(talk())
    opened = log("session opened")
    assert len(opened) >= 3, "twice on the draft server, and on the target"
    assert len({line["request"] for line in opened}) == 1
    (lost,) = log("target lost")
    assert lost["request"] == opened[0]["request"]
