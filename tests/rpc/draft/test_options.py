"""Every option has the same effect over both servers as in one process, also if targets are lost."""

from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel
from experiments.faults.clients import OPTIONS, PLAIN
from specwhisper.audio.speech import find_voice
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode, Segment
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.codec import config_to_proto, segments_from_proto
from tests.nightly import mostly_nightly
from tests.rpc.network import cut_network
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    audio_requests,
    draft_server,
    recording,
    scripted_checkpoint,
    target_server,
)

PCM = recording(65.0, seed=3)
BILINGUAL = recording(65.0, seed=4)  # as the scripted model detects it
speaker = partial(ScriptedModel, vocabulary=MULTILINGUAL)


def target_only(options: DecodingOptions, pcm: bytes = PCM) -> Transcription:
    return InlinePair(speaker(), voice=find_voice()).transcribe([pcm], options)[0]


def written(segments: Iterable[Segment]) -> list[tuple]:
    """Return all properties of segments that another target could write differently."""
    return [
        (
            *(s.start_s, s.end_s, s.tokens, s.text, s.language, round(s.temperature, 3)),
            [(word.start_s, word.end_s, word.text) for word in s.words],
        )
        for s in segments
    ]


async def check_transcribed(
    options: DecodingOptions, mode: Mode, cuts: Sequence[int] = (), pcm: bytes = PCM
) -> tuple[list[pb.StreamingRecognizeResponse], int]:
    """Transcribe over connections that break, -1 before a session is open.

    Return the responses, and how many connections broke.
    """
    checkpoint = scripted_checkpoint(vocabulary=MULTILINGUAL)
    config = pb.StreamingRecognitionConfig(config=config_to_proto(options, mode, 4, is_container=False))
    requests = [pb.StreamingRecognizeRequest(streaming_config=config), *audio_requests(pcm)]
    draft = speaker(MAX_SESSIONS, error_rate=0.2)
    async with (
        target_server(speaker(MAX_SESSIONS), checkpoint) as target,
        cut_network(target.address, cuts) as (network, cutting),
        draft_server(network.address, draft, scripted_checkpoint("draft", vocabulary=MULTILINGUAL)) as server,
    ):
        responses = [response async for response in server.stub.StreamingRecognize(iter(requests))]
        await all_free(target, server)
    expected = target_only(options, pcm)
    results = [result for response in responses for result in response.results]
    if not options.is_lossy:
        assert written(segments_from_proto(results)) == written(expected.segments)
        assert dict(responses[-1].language.probabilities) == pytest.approx(dict(expected.language_probs))
    assert responses[0].model.is_lossy == options.is_lossy
    return responses, cutting.num_cut


@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, Mode.SYNC, Mode.TARGET_ONLY]))
@pytest.mark.parametrize("name", OPTIONS)
async def test_every_option_crosses_the_network(name, mode):
    await check_transcribed(OPTIONS[name], mode)


def test_each_option_has_an_effect():
    """Each changes the text, or what is reported about it."""
    plain = target_only(DecodingOptions.greedy(language="en"))
    for name, options in OPTIONS.items():
        if name == PLAIN:
            continue
        text = target_only(options)
        assert (text.segments, text.language_probs) != (plain.segments, plain.language_probs), name
    assert len({segment.temperature for segment in target_only(OPTIONS["fallback"]).segments}) > 1


async def test_languages_of_segments_cross_the_network():
    responses, _ = await check_transcribed(OPTIONS["multilingual"], Mode.FULL, pcm=BILINGUAL)
    segments = segments_from_proto(result for response in responses for result in response.results)
    assert {segment.language for segment in segments} == {"de", "en"}


async def test_a_lossy_text_is_marked():
    await check_transcribed(DecodingOptions.greedy(language="en", acceptance_threshold=0.5), Mode.SYNC)
