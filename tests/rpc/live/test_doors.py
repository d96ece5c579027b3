"""The same audio has the same final text through gRPC, realtime, Riva and Wyoming."""

import pytest
from wyoming.asr import Transcribe

from experiments.common.models.speech import SPOKEN
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE
from tests.rpc.gateways import running_gateway
from tests.rpc.realtime import COMPLETED, MANUAL, SAME_RATE, base64_of, pieces, session, up_to
from tests.rpc.riva_clients import live_config, riva_client, transcript
from tests.rpc.services import Draft, all_free
from tests.rpc.speaking import LECTURE, Listener, final_text, live_client, speaking_pair
from tests.rpc.wyomings import answer, client_of, say, transcript_of, wyoming_server

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def of_our_client(draft: Draft, pcm: bytes, *, disabled: bool) -> str:
    async with live_client(draft.address, disabled=disabled) as client:
        listener = Listener(client)
        await listener.end(pcm)
    return "".join(segment.text for segment in listener.segments).strip()


async def of_realtime(draft: Draft, pcm: bytes, *, disabled: bool) -> str:
    async with running_gateway(draft.address) as gateway, session(gateway) as connection:
        await connection.session.update(session=SAME_RATE)
        if disabled:
            await connection.session.update(session=MANUAL)
        for piece in pieces(pcm, 9_600):
            await connection.input_audio_buffer.append(audio=base64_of(piece))
        await connection.input_audio_buffer.commit()
        *_, completed = await up_to(connection, COMPLETED)
    return completed.transcript


async def of_riva(draft: Draft, pcm: bytes) -> str:
    async with riva_client(draft) as client:
        responses = await client.stream(pieces(pcm, 3_200), live_config(language_code="en-US"))
    results = [result for response in responses for result in response.results if result.is_final]
    return transcript(results).strip()


async def of_wyoming(draft: Draft, pcm: bytes) -> str:
    async with wyoming_server(draft.address) as server, client_of(server) as client:
        await say(client, pcm, Transcribe(language="en"))
        return transcript_of(await answer(client))


async def test_all_doors_have_the_same_text():
    pcm = LECTURE[: 9 * SAMPLE_RATE * 2]
    async with speaking_pair() as (target, draft):
        found = {
            "gRPC": await of_our_client(draft, pcm, disabled=False),
            "realtime": await of_realtime(draft, pcm, disabled=False),
            "Riva": await of_riva(draft, pcm),
        }
        everything = {
            "gRPC": await of_our_client(draft, pcm, disabled=True),
            "realtime": await of_realtime(draft, pcm, disabled=True),
            "Wyoming": await of_wyoming(draft, pcm),
        }
        await all_free(target, draft)
    assert set(found.values()) == {found["gRPC"]}, found
    assert set(everything.values()) == {everything["gRPC"]}, everything
    for texts, endpointing in ((found, EndpointingOptions()), (everything, None)):
        assert texts["gRPC"] == SPOKEN.decode(final_text(pcm, endpointing)[1]).strip()
