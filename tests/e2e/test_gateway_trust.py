"""A gateway's process with TLS and keys in a file."""

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


def refusal(url: str, context: ssl.SSLContext, key: str | None = None) -> int:
    """Return the status of a request that is refused."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context)
    with refused.value as error:
        return error.code


async def test_a_gateway_with_encryption_and_keys_logs_no_key_even_at_debug_level(folder, unused_tcp_port):
    server = Server(
        *("specwhisper_gateway", "--port", "0", "--server", f"127.0.0.1:{unused_tcp_port}"),
        *("--log-level", "debug"),
        *("--host", "0.0.0.0", "--http-use-ssl", "--http-server-cert", f"{folder}/server.pem"),
        *("--http-server-key", f"{folder}/server.key", "--tokens-file", f"{folder}/tokens"),
    )
    try:
        url = f"https://127.0.0.1:{server.port}"
        context = ssl.create_default_context(cafile=folder / "roots.pem")
        assert refusal(f"{url}/v1/models", context) == 401
        assert refusal(f"{url}/nowhere", context, TOKEN) == 404
        assert server.wait_event("answered", status=404)["caller"] == "anna"
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{url}/health", context=ssl.create_default_context())
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
