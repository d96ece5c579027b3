"""The gateway's connections to clients and draft servers are encrypted or fail."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
import trustme
import websockets

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.tls import ClientTls, ServerTls
from specwhisper.rpc.tokens import Tokens
from specwhisper.settings.command_line import config_from
from specwhisper_gateway.config import GatewayConfig
from tests.certificates import save
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import MODEL, RECORDING, RunningGateway, gateway_for, running_gateway
from tests.rpc.scrapes import scrape

TOKEN = "0123456789abcdef-Right"
TOKENS = Tokens({TOKEN: "anna"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write the certificates of a server and a client, and the roots of another CA."""
    folder = tmp_path_factory.mktemp("certificates")
    own, hosts = trustme.CA(), ("127.0.0.1", "localhost")
    save(own, folder, "server", *hosts)
    save(own, folder, "client", *hosts)
    trustme.CA().cert_pem.write_to_path(folder / "others.pem")
    return folder


def server_tls(folder: Path, *, is_mutual: bool = False) -> ServerTls:
    return ServerTls(
        folder / "server.pem", folder / "server.key", folder / "roots.pem" if is_mutual else None
    )


def trusting(roots: Path, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=roots)
    if client is not None:
        context.load_cert_chain(client / "client.pem", client / "client.key")
    return context


@asynccontextmanager
async def client_of(gateway: RunningGateway, context: ssl.SSLContext) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"https://{gateway.server.address}/v1"
    async with (
        openai.DefaultAsyncHttpxClient(verify=context) as http,
        openai.AsyncOpenAI(base_url=url, api_key=TOKEN, max_retries=0, http_client=http) as api,
    ):
        yield api


async def test_every_connection_is_encrypted(folder):
    async with gateway_for(tls=server_tls(folder), tokens=TOKENS, metrics_port=0) as gateway:
        known = {"headers": {"Authorization": f"Bearer {TOKEN}"}, "context": trusting(folder / "roots.pem")}
        assert "specwhisper_gateway_build_info" in (await scrape(gateway.server.metrics_address, **known))[0]
        async with client_of(gateway, trusting(folder / "roots.pem")) as api:
            assert (await api.audio.transcriptions.create(file=RECORDING, model=MODEL)).text
        async with client_of(gateway, trusting(folder / "others.pem")) as api:
            with pytest.raises(openai.APIConnectionError):
                await api.models.list()
        with pytest.raises(openai.APIConnectionError):
            await gateway.api.models.list()
        url = f"wss://{gateway.server.address}/v1/realtime?intent=transcription"
        offered = ["realtime", f"openai-insecure-api-key.{TOKEN}"]
        async with websockets.connect(url, subprotocols=offered, ssl=known["context"]) as socket:
            assert json.loads(await socket.recv())["type"] == "session.created"


async def test_new_certificates_need_no_restart_and_clients_may_need_one(folder, tmp_path, caplog):
    for name in ("server.pem", "server.key", "roots.pem"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    async with gateway_for(tls=server_tls(tmp_path, is_mutual=True)) as gateway:

        async def check(own: ssl.SSLContext, other: ssl.SSLContext) -> None:
            async with client_of(gateway, own) as api:
                assert (await api.models.list()).data
            async with client_of(gateway, other) as api:
                with pytest.raises(openai.APIConnectionError):
                    await api.models.list()

        old = trusting(folder / "roots.pem", folder)
        await check(old, trusting(folder / "roots.pem"))
        authority = trustme.CA()
        save(authority, tmp_path, "server")
        save(authority, tmp_path, "client")
        await check(trusting(tmp_path / "roots.pem", tmp_path), old)
        (tmp_path / "server.pem").write_text("half written")
        await check(trusting(tmp_path / "roots.pem", tmp_path), old)
    assert "certificate kept" in {record.getMessage() for record in caplog.records}


def test_incomplete_flags_and_a_gateway_without_authentication_are_refused(folder):
    names = {"http-server-cert": "server.pem", "http-server-key": "server.key", "http-root-cert": "roots.pem"}
    paths = {flag: folder / name for flag, name in names.items()}
    certificate = {"http-server-cert": folder / "server.pem"}
    for flags, problem in (
        (certificate, "no effect without --http-use-ssl"),
        (
            {"http-use-ssl": True} | certificate,
            "--http-use-ssl needs --http-server-cert and --http-server-key",
        ),
        ({"http-use-ssl": True} | paths, "--http-use-ssl-mutual and --http-root-cert"),
    ):
        with pytest.raises(InvalidRequest, match=problem):
            config_from(GatewayConfig, flags)
    config = config_from(GatewayConfig, {"http-use-ssl-mutual": True} | paths)
    assert config.tls == server_tls(folder, is_mutual=True)
    GatewayConfig(host="0.0.0.0", tls=config.tls)
    GatewayConfig(host="0.0.0.0", tls=server_tls(folder), tokens=TOKENS)
    with pytest.raises(UnsafeBind, match="without authentication"):
        GatewayConfig(host="0.0.0.0", tls=server_tls(folder))


async def test_encrypted_connections_to_the_draft_server(folder):
    shown = ClientTls(folder / "roots.pem", folder / "client.pem", folder / "client.key")
    trusted = serving(ScriptedTranscription(), tls=server_tls(folder, is_mutual=True), tokens=TOKENS)
    async with trusted as address:
        async with running_gateway(address, server_credentials=Credentials(shown, TOKEN)) as gateway:
            assert (await gateway.transcribe()).text
            async with gateway.api.realtime.connect(extra_query={"intent": "transcription"}) as connection:
                assert (await connection.recv()).type == "session.created"
            assert (await gateway.http.get("/health")).json()["target_model"] == "large"
        for bad, status in (
            (Credentials(shown, TOKEN[:-1]), 500),
            (Credentials(shown), 500),
            (Credentials(), 503),
        ):
            async with running_gateway(address, server_credentials=bad) as gateway:
                reply = await gateway.http.get("/health")
                assert reply.status_code == status
                assert TOKEN[:-1] not in reply.text
                assert ("does not know this gateway" in reply.text) == (status == 500)
