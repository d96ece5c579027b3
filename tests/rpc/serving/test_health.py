"""`specwhisper health`, as container probes call it: its output and exit status."""

from dataclasses import replace

import trustme

from specwhisper.errors import SpecWhisperError
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls
from specwhisper.rpc.tokens import Tokens
from specwhisper_client.cli.main import is_serving
from tests.certificates import save
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway
from tests.rpc.services import running

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


async def test_a_gateway_is_healthy_while_its_draft_server_answers():
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft) as gateway:
        assert await ask(gateway.url) is True
        url = gateway.url
    assert f"No gateway answers at {url}" in await ask(url)
    async with running_gateway(draft) as gateway:
        assert await ask(gateway.url) is False


async def test_a_gateway_with_client_certificates_and_another_name(tmp_path):
    own = trustme.CA()
    asking = replace(save(own, tmp_path, "server", "gateway.example"), client_roots=tmp_path / "roots.pem")
    shown = save(own, tmp_path, "probe", "probe.example")
    right = ClientTls(tmp_path / "roots.pem", shown.certificate, shown.key, "gateway.example")
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft, tls=asking) as gateway:
        url = f"https://{gateway.server.address}"
        assert await ask(url, Credentials(right)) is True
        for wrong in (replace(right, server_name=None), replace(right, certificate=None, key=None)):
            assert f"No gateway answers at {url}" in await ask(url, Credentials(wrong))


async def test_a_server_that_is_no_gateway_is_reported_in_one_sentence(tmp_path):
    encrypted = ServingOptions(tls=save(trustme.CA(), tmp_path, "server"))
    trusting = Credentials(ClientTls(tmp_path / "roots.pem"))
    for options in (ServingOptions(), encrypted):
        async with running({}, options) as server:
            for url in (f"http://{server.address}", f"https://{server.address}"):
                assert url in await ask(url, trusting)
    for url in ("http://", "http://127.0.0.1:port"):
        assert url in await ask(url)
