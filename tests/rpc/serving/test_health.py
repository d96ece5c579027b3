"""`specwhisper health`, as container probes call it: its output and exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import trustme

from specwhisper.errors import SpecWhisperError
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls, ServerTls
from specwhisper.rpc.tokens import Tokens
from specwhisper_client.cli.health import is_serving
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway

TOKENS = Tokens({"0123456789abcdef": "anna"})


async def ask(address: str, credentials: Credentials = OPEN) -> bool | str:
    """Return whether a server takes calls, or the error."""
    try:
        return await is_serving(address, credentials)
    except SpecWhisperError as error:
        return str(error)


async def test_a_server_is_healthy_until_it_stops():
    server = await start_server({}, ServingOptions())
    assert await ask(server.address) is True
    while_stopping = []

    async def on_drain() -> None:
        while_stopping.append(await ask(server.address))

    await server.stop(drain_timeout_s=30, on_drain=on_drain)
    assert while_stopping == [False]
    assert f"No server answers at {server.address}; is it running?" in await ask(server.address)


def write(certificate: trustme.LeafCert, folder: Path, name: str) -> ServerTls:
    certificate.private_key_pem.write_to_path(folder / f"{name}.key")
    certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return ServerTls(folder / f"{name}.pem", folder / f"{name}.key")


async def test_health_needs_the_right_authority_but_no_token(tmp_path):
    own, other = trustme.CA(), trustme.CA()
    certificate = own.issue_cert("127.0.0.1")
    own.cert_pem.write_to_path(tmp_path / "own.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    tls = write(certificate, tmp_path, "server")
    server = await start_server({}, ServingOptions(tls=tls, tokens=TOKENS))
    try:
        assert await ask(server.address, Credentials(ClientTls(tmp_path / "own.pem"))) is True
        for strangers in (OPEN, Credentials(ClientTls(tmp_path / "other.pem"))):
            assert server.address in await ask(server.address, strangers)
    finally:
        await server.stop(drain_timeout_s=0)


async def test_a_gateway_is_healthy_while_its_draft_server_answers():
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft) as gateway:
        assert await ask(gateway.url) is True
        url = gateway.url
    assert f"No gateway answers at {url}" in await ask(url)
    async with running_gateway(draft) as gateway:
        assert await ask(gateway.url) is False


async def test_a_gateway_with_client_certificates_and_another_name(tmp_path):
    own = trustme.CA()
    own.cert_pem.write_to_path(tmp_path / "own.pem")
    asking = replace(
        write(own.issue_cert("gateway.example"), tmp_path, "server"), client_roots=tmp_path / "own.pem"
    )
    shown = write(own.issue_cert("probe.example"), tmp_path, "probe")
    right = ClientTls(tmp_path / "own.pem", shown.certificate, shown.key, "gateway.example")
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft, tls=asking) as gateway:
        url = f"https://{gateway.server.address}"
        assert await ask(url, Credentials(right)) is True
        for wrong in (replace(right, server_name=None), replace(right, certificate=None, key=None)):
            assert f"No gateway answers at {url}" in await ask(url, Credentials(wrong))


async def test_a_server_that_is_no_gateway_is_reported_in_one_sentence(tmp_path):
    own = trustme.CA()
    own.cert_pem.write_to_path(tmp_path / "own.pem")
    encrypted = ServingOptions(tls=write(own.issue_cert("127.0.0.1"), tmp_path, "server"))
    trusting = Credentials(ClientTls(tmp_path / "own.pem"))
    for options in (ServingOptions(), encrypted):
        server = await start_server({}, options)
        try:
            for url in (f"http://{server.address}", f"https://{server.address}"):
                assert url in await ask(url, trusting)
        finally:
            await server.stop(drain_timeout_s=0)
    for url in ("http://", "http://127.0.0.1:port"):
        assert url in await ask(url)
