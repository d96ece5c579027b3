"""Every option has the same effect over both servers as in one process, even if targets are lost."""

from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel
from experiments.faults.clients import MODES, OPTIONS, PLAIN
from specwhisper.audio.speech import find_voice
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode, Segment
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.codec import config_to_proto, segments_from_proto
from tests.nightly import NIGHTLY, mostly_nightly
from tests.rpc.network import cut_network
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    audio_requests,
    draft_server,
    recording,
    refusal,
    responses_to,
    scripted_checkpoint,
    streaming_config,
    target_server,
)

PCM = recording(65.0, seed=3)
BILINGUAL = recording(65.0, seed=4)  # as the scripted model detects it
speaker = partial(ScriptedModel, vocabulary=MULTILINGUAL)
pytestmark = pytest.mark.usefixtures("fast_retries")


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
        responses = await responses_to(server, *requests)
        await all_free(target, server)
    expected = target_only(options, pcm)
    results = [result for response in responses for result in response.results]
    if not options.is_lossy:
        assert written(segments_from_proto(results)) == written(expected.segments)
        assert dict(responses[-1].language.probabilities) == pytest.approx(dict(expected.language_probs))
    assert responses[0].model.is_lossy == options.is_lossy
    return responses, cutting.num_cut


@pytest.mark.parametrize("mode", mostly_nightly(MODES[::-1]))
@pytest.mark.parametrize("name", OPTIONS)
async def test_every_option_crosses_the_network_and_outlives_the_target(name, mode):
    cuts = [1, 5, 13, 0, 2, 21, 0, 0, 1, 1, 8, 34]
    _, num_cut = await check_transcribed(OPTIONS[name], mode, cuts)
    assert num_cut > 3


@pytest.mark.parametrize("mode", mostly_nightly(MODES[::-1]))
async def test_wherever_a_connection_breaks_the_text_is_the_same(mode):
    for first in range(0, 60, 4 if NIGHTLY else 12):
        cuts = [-1, -1, first, first + 1, -1, 0, 1, 2, 3]
        await check_transcribed(OPTIONS["detected language"], mode, cuts)


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


async def test_audio_that_cannot_be_sent_ends_the_session(monkeypatch, caplog):
    """The session does not wait for the audio, nor look for another target."""
    given, write = [], codec.audio_chunk_to_proto

    def fails(chunk, **kwargs):
        given.append(chunk)
        if len(given) > 3:
            raise ArithmeticError("The encoder has failed.")
        return write(chunk, **kwargs)

    monkeypatch.setattr(codec, "audio_chunk_to_proto", fails)
    async with target_server() as target, draft_server(target.address) as server:
        error = await refusal(server, streaming_config(), *audio_requests(recording(40.0)))
        assert type(error) is SpecWhisperError
        await all_free(target, server)
    assert "The encoder has failed" in caplog.text and "target lost" not in caplog.text
