"""`specwhisper health`, as the probes of containers call it: what it prints, and whether it says yes."""

from __future__ import annotations

import io

import trustme
from rich.console import Console

from client.health import show_health
from specwhisper.wire.channels import OPEN, Credentials
from specwhisper.wire.serving import ServingOptions, start_server
from specwhisper.wire.tls import ClientTls, ServerTls
from specwhisper.wire.tokens import Tokens
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway

TOKENS = Tokens({"0123456789abcdef": "anna"})


async def ask(address: str, credentials: Credentials = OPEN) -> tuple[bool, str, str]:
    out, err = io.StringIO(), io.StringIO()
    is_well = await show_health(address, Console(file=out), Console(file=err, width=200), credentials)
    return is_well, out.getvalue(), err.getvalue()


async def test_a_server_serves_until_it_stops_and_is_gone_then():
    server = await start_server({}, ServingOptions())
    assert await ask(server.address) == (True, "serving\n", "")
    while_stopping = []

    async def on_drain() -> None:
        while_stopping.append(await ask(server.address))

    await server.stop(drain_timeout_s=30, on_drain=on_drain)
    assert while_stopping == [(False, "not serving\n", "")]
    is_well, out, err = await ask(server.address)
    assert (is_well, out) == (False, "")
    assert f"No server answers at {server.address}; is it running?" in err


async def test_no_token_is_needed_but_the_right_authority(tmp_path):
    own, other = trustme.CA(), trustme.CA()
    certificate = own.issue_cert("127.0.0.1")
    for name, blob in (
        ("own.pem", own.cert_pem),
        ("other.pem", other.cert_pem),
        ("server.key", certificate.private_key_pem),
        ("server.pem", certificate.cert_chain_pems[0]),
    ):
        blob.write_to_path(tmp_path / name)
    tls = ServerTls(tmp_path / "server.pem", tmp_path / "server.key")
    server = await start_server({}, ServingOptions(tls=tls, tokens=TOKENS))
    try:
        assert await ask(server.address, Credentials(ClientTls(tmp_path / "own.pem"))) == (
            True,
            "serving\n",
            "",
        )
        for strangers in (OPEN, Credentials(ClientTls(tmp_path / "other.pem"))):
            is_well, out, err = await ask(server.address, strangers)
            assert (is_well, out) == (False, "")
            assert server.address in err
    finally:
        await server.stop(drain_timeout_s=0)


async def test_a_gateway_is_well_while_its_draft_server_answers():
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft) as gateway:
        assert await ask(gateway.url) == (True, "serving\n", "")
        url = gateway.url
    is_well, out, err = await ask(url)
    assert (is_well, out) == (False, "")
    assert f"No gateway answers at {url}" in err
    async with running_gateway(draft) as gateway:
        assert await ask(gateway.url) == (False, "not serving\n", "")
