"""Client secrets open realtime sessions, and Riva's realtime client transcribes with one."""

import argparse
import asyncio

import pytest
from riva.client.argparse_utils import add_asr_config_argparse_parameters
from riva.client.realtime import RealtimeClientASR

from specwhisper.errors import ServerFull
from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway.realtime import secrets
from specwhisper_gateway.realtime.secrets import ClientSecrets
from specwhisper_gateway.realtime.settings import RealtimeSettings
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES
from tests.rpc.realtime import PCM, QUERY, pieces

KEY = "k" * 32
HEADERS = {"Authorization": f"Bearer {KEY}"}


async def test_a_secret_opens_a_session_with_its_settings():
    server = ScriptedTranscription(EVERYTHING)
    tokens = Tokens({KEY: "anna"})
    async with gateway_for(server, tokens=tokens) as gateway:
        audio_input = {"format": {"type": "audio/pcmu"}, "transcription": {"language": "de"}}
        body = {"session": {"type": "transcription", "audio": {"input": audio_input}}}
        reply = await gateway.http.post("/v1/realtime/client_secrets", json=body, headers=HEADERS)
        created = reply.json()
        assert reply.status_code == 200
        assert created["session"]["audio"]["input"]["transcription"]["language"] == "de"
        browser = gateway.api.with_options(api_key=created["value"])
        async with browser.realtime.connect(extra_query=QUERY) as connection:
            opened = await connection.recv()
        assert opened.session.audio.input.format.type == "audio/pcmu"
        assert opened.session.audio.input.transcription.language == "de"
        other = await gateway.http.get("/v1/models", headers={"Authorization": f"Bearer {created['value']}"})
    assert other.status_code == 401


async def test_what_is_not_supported_is_refused(gateway):
    klingon = {"audio": {"input": {"transcription": {"language": "klingon"}}}}
    for body, param in (
        ({"expires_after": {"seconds": 5}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now"}}, "expires_after.anchor"),
        ({"session": {"type": "realtime"}}, "session.type"),
        ({"model": "whisper-1"}, "model"),
        ({"session": klingon}, "session.audio.input.transcription.language"),
    ):
        reply = await gateway.http.post("/v1/realtime/client_secrets", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    too_large = await gateway.http.post("/v1/realtime/client_secrets", content=b"x" * 70_000)
    assert too_large.status_code == 413


def test_a_secret_expires(monkeypatch):
    now = [100.0]
    known = ClientSecrets(lambda: now[0])
    monkeypatch.setattr(secrets, "MAX_SECRETS", 1)
    value, _ = known.create("anna", RealtimeSettings(), 60)
    assert known.find(value).caller == "anna"
    assert known.find("ek_other") is None
    with pytest.raises(ServerFull):
        known.create("anna", RealtimeSettings(), 60)
    now[0] += 60
    assert known.find(value) is None
    known.create("anna", RealtimeSettings(), 60)


def riva_arguments(address, **changes):
    """Return the arguments of Riva's script ``realtime_asr_client.py`` with its defaults."""
    parser = argparse.ArgumentParser()
    add_asr_config_argparse_parameters(
        parser, max_alternatives=True, profanity_filter=True, word_time_offsets=True
    )
    defaults = vars(parser.parse_args([])) | {
        "server": address,
        "endpoint": "/v1/realtime",
        "query_params": "intent=transcription",
        "mint_api_key": KEY,
        "use_ssl": False,
        "ssl_root_cert": None,
        "ssl_client_cert": None,
        "ssl_client_key": None,
        "mic": False,
        "prompt": "",
        "sample_rate_hz": 16_000,
        "num_channels": 1,
    }
    return argparse.Namespace(**defaults | changes)


async def test_rivas_realtime_client():
    server = ScriptedTranscription(TWO_UTTERANCES)
    tokens = Tokens({KEY: "anna"})
    async with gateway_for(server, tokens=tokens) as gateway:
        changes = {"language_code": "de", "boosted_lm_words": ["Imker"], "stop_history": 300}
        client = RealtimeClientASR(riva_arguments(gateway.server.address, **changes))
        # It blocks while it creates its session.
        await asyncio.to_thread(asyncio.run, _talk(client))
        refused = RealtimeClientASR(riva_arguments(gateway.server.address, mint_api_key="wrong"))
        with pytest.raises(Exception, match="HTTP 401"):
            await asyncio.to_thread(asyncio.run, refused.connect())
    assert client.final_transcript == "Hello there. Bye."
    assert server.audio == PCM
    assert server.config.config.decoding.languages == ["de"]
    assert server.config.config.decoding.hotwords == "Imker"
    assert server.config.endpointing.silence_duration_ms == 300


async def _talk(client: RealtimeClientASR) -> None:
    await client.connect()
    await client.send_audio_chunks(pieces(PCM, 3_200))
    await client.receive_responses()
    await client.disconnect()
