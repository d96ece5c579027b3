"""``deploy/nginx.conf`` holds what it promises, before a real gateway."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import openai
import pytest
import trustme
import websockets

from tests.certificates import save
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription, serving
from tests.rpc.gateways import MODEL, RECORDING, RunningGateway, ends, running_gateway
from tests.rpc.services import eventually

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
PROXY = Path(__file__).parents[3] / "deploy" / "nginx.conf"
HTTP = """
daemon off; master_process off; pid nginx.pid; error_log stderr warn;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include gateway.conf;
}
"""
# Where CI runs, a missing nginx is a failure.
pytestmark = pytest.mark.skipif(
    NGINX is None and "CI" not in os.environ, reason="needs nginx: apt-get install nginx-light"
)


@dataclass(frozen=True)
class Proxy:
    """A running nginx; ``trusting`` is a client's context."""

    port: int
    trusting: ssl.SSLContext
    gateway: RunningGateway
    api: openai.AsyncOpenAI

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def socket(self, path: str, **settings) -> websockets.connect:
        url = f"wss://{self.address}{path}"
        return websockets.connect(url, ssl=self.trusting, origin=f"https://{self.address}", **settings)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=self.trusting)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


def configured(folder: Path, port: int, gateway: str, head_s: int) -> None:
    """Write the committed configuration with a test's addresses, certificate and time limit."""
    save(trustme.CA(), folder, "server", "localhost")
    text = PROXY.read_text()
    for yours, own in (
        ("server 127.0.0.1:8000;", f"server {gateway};"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/tls/server.pem", str(folder / "server.pem")),
        ("/etc/nginx/tls/server.key", str(folder / "server.key")),
        ("client_header_timeout 10s;", f"client_header_timeout {head_s}s;"),
    ):
        assert text.count(yours) == 1, yours
        text = text.replace(yours, own)
    (folder / "gateway.conf").write_text(text)
    (folder / "nginx.conf").write_text(HTTP)


@asynccontextmanager
async def run_proxy(
    folder: Path, free_port: Callable[[], int], draft: str, *, head_s: int = 10, **settings
) -> AsyncIterator[Proxy]:
    """Run a gateway, and nginx before it."""
    async with running_gateway(draft, **settings) as gateway:
        port = free_port()  # chosen once the servers have theirs
        configured(folder, port, gateway.server.address, head_s)
        assert NGINX is not None
        arguments = ("-p", f"{folder}/", "-c", f"{folder}/nginx.conf", "-e", "stderr")
        nginx = subprocess.Popen([NGINX, *arguments])
        try:
            trusting = ssl.create_default_context(cafile=folder / "roots.pem")

            def answers() -> bool:
                assert nginx.poll() is None
                with socket.socket() as tried:
                    return tried.connect_ex(("127.0.0.1", port)) == 0

            await eventually(answers)
            async with (
                openai.DefaultAsyncHttpxClient(verify=trusting) as http,
                openai.AsyncOpenAI(
                    base_url=f"https://localhost:{port}/v1", api_key="right", max_retries=0, http_client=http
                ) as api,
            ):
                yield Proxy(port, trusting, gateway, api)
        finally:
            nginx.terminate()
            nginx.wait()


@pytest.fixture
def proxied(tmp_path, unused_tcp_port_factory) -> Callable[..., AbstractAsyncContextManager[Proxy]]:
    return partial(run_proxy, tmp_path, unused_tcp_port_factory)


async def test_slow_heads_and_handshakes_are_cut(proxied):
    async with (
        proxied("127.0.0.1:1", head_s=1) as proxy,
        proxy.connected() as (silent, _),
        proxy.connected() as (slow, writer),
    ):
        handshaking, plain = await asyncio.open_connection("127.0.0.1", proxy.port)
        cut = asyncio.gather(ends(silent), ends(slow), ends(handshaking))
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: here\r\n")
        while not cut.done():
            writer.write(b"X-One: more\r\n")
            await asyncio.wait((cut,), timeout=0.1)
        assert await cut == [b"", b"", b""]
        plain.close()


async def test_large_heads_are_refused(proxied):
    async with proxied("127.0.0.1:1") as proxy:
        for num_lines, num_bytes in ((1, 9_000), (6, 4_000)):
            head = "\r\n".join(f"X-{number}: {'x' * num_bytes}" for number in range(num_lines))
            async with proxy.connected() as (reader, writer):
                writer.write(f"GET /health/live HTTP/1.1\r\nHost: here\r\n{head}\r\n\r\n".encode())
                assert (await ends(reader)).startswith(b"HTTP/1.1 400 ")


async def test_an_address_has_few_connections(proxied):
    async with (
        serving(ScriptedTranscription()) as draft,
        proxied(draft, api_key="right") as proxy,
        AsyncExitStack() as stack,
    ):
        key = {"subprotocols": ["specwhisper", "openai-insecure-api-key.right"]}
        for _ in range(20):
            await stack.enter_async_context(proxy.socket("/live", **key))
        with pytest.raises(openai.RateLimitError, match="Your address has too many") as refused:
            await proxy.api.models.list()
        assert (refused.value.type, refused.value.code) == ("requests", "rate_limit_exceeded")
        assert refused.value.response.headers["retry-after"] == "1"
        with pytest.raises(websockets.InvalidStatus, match="429"):
            await stack.enter_async_context(proxy.socket("/live", **key))
        await stack.enter_async_context(proxy.socket("/live", local_addr=("127.0.0.2", 0), **key))


async def test_limits_count_the_clients_address(proxied):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with serving(server) as draft, proxied(draft, max_sessions=2) as proxy:
        api = proxy.api.with_options(default_headers={"X-Forwarded-For": "192.0.2.7"})  # is replaced
        page = {"origin": None, "local_addr": ("127.0.0.2", 0)}
        url = f"wss://{proxy.address}/live"
        async with websockets.connect(url, ssl=proxy.trusting, **page):
            stream = await api.audio.transcriptions.create(file=RECORDING, model=MODEL, stream=True)
            with pytest.raises(openai.RateLimitError, match=r"1 sessions of '127\.0\.0\.1'"):
                await api.audio.transcriptions.create(file=RECORDING, model=MODEL)
            await stream.close()


async def test_the_reason_of_a_refused_upload_is_read(proxied):
    async with proxied("127.0.0.1:1", api_key="right", max_upload_bytes=1_000_000) as proxy:
        wrong = proxy.api.with_options(api_key="wrong")
        large = ("a.wav", bytes(8_000_000))
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            await wrong.audio.transcriptions.create(file=large, model=MODEL)
        with pytest.raises(openai.APIStatusError, match="this gateway takes 1000000") as refused:
            await proxy.api.audio.transcriptions.create(file=large, model=MODEL)
        with pytest.raises(openai.APIStatusError, match="too large for this proxy") as by_proxy:
            await proxy.api.audio.transcriptions.create(file=("a.wav", bytes(27 << 20)), model=MODEL)
        for error in (refused.value, by_proxy.value):
            assert (error.status_code, error.code) == (413, "request_too_large")


async def test_a_gateway_that_is_down_is_unavailable(proxied):
    async with proxied("127.0.0.1:1") as proxy:
        proxy.gateway.server.stop()
        await eventually(lambda: not proxy.gateway.server.servers[0].is_serving())
        with pytest.raises(openai.InternalServerError, match="gateway does not answer") as refused:
            await proxy.api.models.list()
    assert (refused.value.status_code, refused.value.code) == (503, "unavailable")


async def test_uploads_events_and_captions_are_passed_on_as_they_come(proxied):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with serving(server) as draft, proxied(draft, api_key="right") as proxy:
        stream = await proxy.api.audio.transcriptions.create(file=RECORDING, model=MODEL, stream=True)
        assert (await anext(aiter(stream))).delta == "Hello there."
        await stream.close()
        await server.left
        await eventually(lambda: proxy.gateway.num_sessions == 0)
        async with proxy.connected() as (_, writer):
            writer.write(
                b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer right\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 999999\r\n\r\n--x\r\n"
            )
            await eventually(lambda: proxy.gateway.num_sessions == 1)
        keys = ["specwhisper", "openai-insecure-api-key.right"]
        async with proxy.socket("/live", subprotocols=keys) as page:
            await page.send(json.dumps({"type": "start", "sample_rate": 16_000}))
            await page.send(bytes(32_000))
            await page.send(json.dumps({"type": "finish"}))
            assert json.loads(await page.recv())["type"] == "ready"
