"""A client's commit is answered at once, also if nothing was said."""

import pytest

from specwhisper.types import SAMPLE_RATE
from tests.rpc.gateways import running_gateway
from tests.rpc.realtime import COMPLETED, SAME_RATE, UTTERANCE, base64_of, session, up_to
from tests.rpc.speaking import speaking_pair

pytestmark = pytest.mark.usefixtures("energy_vad")

COMMITTED = UTTERANCE[2]


@pytest.mark.parametrize("detects_speech", [False, True])
async def test_silence_is_committed_and_completed_without_text(detects_speech):
    async with speaking_pair() as (_, draft), running_gateway(draft.address) as gateway:
        async with session(gateway) as connection:
            turn_detection = {"type": "server_vad"} if detects_speech else None
            await connection.session.update(session=settings(turn_detection=turn_detection))
            for _ in range(2):
                await connection.input_audio_buffer.append(audio=base64_of(bytes(2 * SAMPLE_RATE)))
                await connection.input_audio_buffer.commit()
                events = await up_to(connection, COMPLETED)
                kinds = [event.type for event in events]
                assert kinds.index(COMMITTED) < kinds.index(COMPLETED)
                assert events[-1].transcript == ""


def settings(**audio_input):
    """Return the settings of a session of 16 kHz."""
    same_rate = SAME_RATE["audio"]["input"]
    return {"type": "transcription", "audio": {"input": same_rate | audio_input}}
