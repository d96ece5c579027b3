"""Riva's clients receive the speakers of recordings and of live audio."""

import pytest
from riva.client.proto import riva_asr_pb2 as riva_pb

from experiments.common.models.speech import SPOKEN, spoken_utterances, talk
from specwhisper.errors import InvalidRequest
from specwhisper_draft_server.config import DraftConfig
from specwhisper_riva.settings import RivaSettings, riva_services
from specwhisper_speakers.settings import SpeakerOptions
from tests.rpc.riva_clients import live_config, pcm_config, pieces, riva_client, transcript
from tests.rpc.services import all_free, running_pair
from tests.rpc.speaking import speaking_pair
from tests.speaker_models import HIGH_HZ, LOW_HZ, tones

SPEAKERS = riva_pb.SpeakerDiarizationConfig(enable_speaker_diarization=True, max_speaker_count=2)
TALK = (tones([(0.0, 25.0, HIGH_HZ), (25.0, 55.0, LOW_HZ)], 58.0) * 32_767).astype("<i2").tobytes()


@pytest.fixture
def speakers(speaker_models):
    return SpeakerOptions(speaker_models=str(speaker_models)).speakers()


async def test_words_have_speaker_tags(speakers):
    config = pcm_config(diarization_config=SPEAKERS)
    async with running_pair(extras={"speakers": speakers}) as (target, draft), riva_client(draft) as client:
        response = await client.recognize(TALK, config)
        plain = await client.recognize(TALK, pcm_config(enable_word_time_offsets=True))
        await all_free(target, draft)
    words = response.results[0].alternatives[0].words
    assert {word.speaker_tag for word in words if word.end_time < 25_000} == {1}
    assert {word.speaker_tag for word in words if word.start_time > 25_000} == {2}
    untagged = plain.results[0].alternatives[0].words
    assert [word.word for word in words] == [word.word for word in untagged]
    assert {word.speaker_tag for word in untagged} == {0}


@pytest.mark.usefixtures("energy_vad")
async def test_words_of_a_streams_utterances_have_speaker_tags(speakers):
    pcm = talk()
    config = live_config(diarization_config=SPEAKERS, language_code="en")
    async with speaking_pair(extras={"speakers": speakers}) as (target, draft), riva_client(draft) as client:
        responses = await client.stream(pieces(pcm), config)
        await all_free(target, draft)
    results = [result for response in responses for result in response.results]
    final = [result for result in results if result.is_final]
    said = [SPOKEN.decode(tokens).split() for tokens in spoken_utterances(pcm).values()]
    assert [transcript([result]).split() for result in final] == said
    spoken = [result.alternatives[0].words for result in final]
    assert ["".join(word.word for word in words) for words in spoken] == ["".join(each) for each in said]
    starts = [word.start_time for words in spoken for word in words]
    assert starts == sorted(starts)
    # The tiny models find one voice, in most of it.
    assert {word.speaker_tag for words in spoken for word in words} - {0} == {1}
    assert not any(result.alternatives[0].words for result in results if not result.is_final)


def test_models_without_rivas_service_are_refused(speakers):
    config = DraftConfig(extras={"riva": RivaSettings(riva=False), "speakers": speakers})
    with pytest.raises(InvalidRequest, match="leave it or --no-riva out"):
        riva_services(None, config)
