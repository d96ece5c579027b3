"""Realtime sessions take a telephone's audio."""

import json

import pytest

from specwhisper.audio.decode import G711, decode_g711
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import EVERYTHING
from tests.rpc.realtime import COMPLETED, PCM, base64_of, session, settings, up_to

SOUND = PCM[:16_000]  # 2 s at 8 kHz


@pytest.mark.parametrize(
    ("name", "beta_name", "law"),
    [("audio/pcmu", "g711_ulaw", G711.MULAW), ("audio/pcma", "g711_alaw", G711.ALAW)],
)
async def test_g711_is_decoded(name, beta_name, law):
    server = ScriptedTranscription(EVERYTHING)
    async with gateway_for(server) as gateway, session(gateway) as connection:
        audio_input = {"format": {"type": name}, "turn_detection": None}
        await connection.session.update(session=settings(**audio_input))
        updated = await connection.recv()
        for start in range(0, len(SOUND), 161):  # an odd number of samples
            await connection.input_audio_buffer.append(audio=base64_of(SOUND[start : start + 161]))
        await connection.input_audio_buffer.commit()
        completed = (await up_to(connection, COMPLETED))[-1]
        flat = {"input_audio_format": beta_name}
        await connection.send({"type": "transcription_session.update", "session": flat})
        again = json.loads(await connection.recv_bytes())
    assert updated.session.audio.input.format.type == name
    assert completed.usage.seconds == 2
    assert again["session"]["input_audio_format"] == beta_name
    if server.config.config.sample_rate_hertz == 8_000:
        assert server.audio == decode_g711(SOUND, law)
    else:
        assert len(server.audio) == 2 * 2 * 16_000
