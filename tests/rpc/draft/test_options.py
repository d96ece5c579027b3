"""Every option has the same effect over both servers as in one process."""

from functools import partial

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel
from experiments.faults.clients import OPTIONS, PLAIN
from specwhisper.audio.speech import find_voice
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.codec import config_to_proto, segments_from_proto
from tests.nightly import mostly_nightly
from tests.rpc.services import (
    MAX_SESSIONS,
    audio_requests,
    draft_server,
    recording,
    scripted_checkpoint,
    target_server,
)

PCM = recording(65.0, seed=3)
BILINGUAL = recording(65.0, seed=4)  # as the scripted model detects it
speaker = partial(ScriptedModel, vocabulary=MULTILINGUAL)


async def transcribed(
    options: DecodingOptions, mode: Mode, pcm: bytes = PCM
) -> list[pb.StreamingRecognizeResponse]:
    """Transcribe over a scripted target and draft server."""
    checkpoint = scripted_checkpoint(vocabulary=MULTILINGUAL)
    config = pb.StreamingRecognitionConfig(config=config_to_proto(options, mode, 4, is_container=False))
    requests = [pb.StreamingRecognizeRequest(streaming_config=config), *audio_requests(pcm)]
    draft = speaker(MAX_SESSIONS, error_rate=0.2)
    async with (
        target_server(speaker(MAX_SESSIONS), checkpoint) as target,
        draft_server(target.address, draft, scripted_checkpoint("draft", vocabulary=MULTILINGUAL)) as server,
    ):
        return [response async for response in server.stub.StreamingRecognize(iter(requests))]


@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, Mode.SYNC, Mode.TARGET_ONLY]))
@pytest.mark.parametrize("name", OPTIONS)
async def test_every_option_crosses_the_network(name, mode):
    options = OPTIONS[name]
    alone = InlinePair(speaker(), voice=find_voice()).transcribe([PCM], options)[0]
    responses = await transcribed(options, mode)
    results = [result for response in responses for result in response.results]
    segments = segments_from_proto(results)
    assert [(s.start_s, s.end_s, s.tokens, s.text) for s in segments] == [
        (s.start_s, s.end_s, s.tokens, s.text) for s in alone.segments
    ]
    assert [s.temperature for s in segments] == pytest.approx([s.temperature for s in alone.segments])
    assert [[(w.start_s, w.end_s, w.text) for w in s.words] for s in segments] == [
        [(w.start_s, w.end_s, w.text) for w in s.words] for s in alone.segments
    ]
    assert dict(responses[-1].language.probabilities) == pytest.approx(dict(alone.language_probs))
    assert [segment.language for segment in segments] == [segment.language for segment in alone.segments]
    assert not responses[0].model.is_lossy


def test_each_option_has_an_effect():
    """Each changes the text, or what is reported about it."""
    plain = InlinePair(speaker(), voice=find_voice()).transcribe(
        [PCM], DecodingOptions.greedy(language="en")
    )[0]
    for name, options in OPTIONS.items():
        if name == PLAIN:
            continue
        text = InlinePair(speaker(), voice=find_voice()).transcribe([PCM], options)[0]
        assert (text.segments, text.language_probs) != (plain.segments, plain.language_probs), name
    fallback = InlinePair(speaker(), voice=find_voice()).transcribe([PCM], OPTIONS["fallback"])[0]
    assert len({segment.temperature for segment in fallback.segments}) > 1


async def test_languages_of_segments_cross_the_network():
    options = OPTIONS["multilingual"]
    alone = InlinePair(speaker(), voice=find_voice()).transcribe([BILINGUAL], options)[0]
    responses = await transcribed(options, Mode.FULL, BILINGUAL)
    segments = segments_from_proto(result for response in responses for result in response.results)
    assert [(s.tokens, s.language) for s in segments] == [(s.tokens, s.language) for s in alone.segments]
    assert {segment.language for segment in segments} == {"de", "en"}


async def test_a_lossy_text_is_marked():
    options = DecodingOptions.greedy(language="en", acceptance_threshold=0.5)
    responses = await transcribed(options, Mode.SYNC)
    assert responses[0].model.is_lossy
