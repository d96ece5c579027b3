"""A gateway's process with TLS, keys in a file and metrics on another port."""

import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme
from websockets.asyncio.client import connect

from tests.certificates import save
from tests.e2e.processes import Server

TOKEN = "0123456789abcdef-of-anna"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    save(trustme.CA(), folder, "server")
    (folder / "tokens").write_text(f"anna {TOKEN}\n")
    return folder


def ask(url: str, context: ssl.SSLContext | None = None, key: str | None = None) -> tuple[int, str]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_gateway_with_encryption_and_keys_logs_no_key_even_at_debug_level(folder, unused_tcp_port):
    server = Server(
        *("specwhisper_gateway", "--port", "0", "--server", f"127.0.0.1:{unused_tcp_port}"),
        *("--metrics-port", "0", "--log-level", "debug"),
        *("--host", "0.0.0.0", "--http-use-ssl", "--http-server-cert", f"{folder}/server.pem"),
        *("--http-server-key", f"{folder}/server.key", "--tokens-file", f"{folder}/tokens"),
    )
    try:
        figures = server.wait_event("metrics")["address"]
        url = f"https://127.0.0.1:{server.port}"
        context = ssl.create_default_context(cafile=folder / "roots.pem")
        assert ask(f"{url}/v1/models", context)[0] == 401
        assert ask(f"{url}/nowhere", context, TOKEN)[0] == 404
        assert server.wait_event("answered", status=404)["caller"] == "anna"
        assert ask(f"{url}/metrics", context, TOKEN)[0] == 404
        assert ask(f"https://{figures}/metrics", context)[0] == 401
        status, body = ask(f"https://{figures}/metrics", context, TOKEN)
        assert (status, 'errors_total{kind="WrongApiKey"} 1.0' in body) == (200, True)
        with pytest.raises(urllib.error.URLError):
            ask(f"{url}/health", ssl.create_default_context())
        for path in ("/live", "/v1/realtime?intent=transcription"):
            for shown in (
                {"additional_headers": {"Authorization": f"Bearer {TOKEN}"}},
                {"subprotocols": ["realtime", f"openai-insecure-api-key.{TOKEN}"]},
            ):
                # No draft server answers the gateway.
                async with connect(f"wss://127.0.0.1:{server.port}{path}", ssl=context, **shown):
                    pass
        server.send_signal(signal.SIGTERM)
        _, _, log = server.wait()
    finally:
        server.end()
    ended = [event for event in server.events if event["message"] == "session ended"]
    assert [event["caller"] for event in ended] == ["anna"] * 4
    assert TOKEN not in log
