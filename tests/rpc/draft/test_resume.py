"""A recording whose target is lost continues elsewhere, with the same text."""

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL
from specwhisper.audio.speech import find_voice
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.codec import config_to_proto, segments_from_proto
from tests.nightly import NIGHTLY, mostly_nightly
from tests.rpc.draft.test_options import OPTIONS, PCM, speaker
from tests.rpc.network import cut_network
from tests.rpc.services import (
    MAX_SESSIONS,
    all_free,
    audio_requests,
    draft_server,
    error_of,
    recording,
    scripted_checkpoint,
    streaming_config,
    target_server,
)

MODES = [Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL]
pytestmark = pytest.mark.usefixtures("fast_retries")


def written(segments) -> list[tuple]:
    """Return all properties of segments that another target could write differently."""
    return [
        (s.start_s, s.end_s, s.tokens, s.language, round(s.temperature, 3), [w.start_s for w in s.words])
        for s in segments
    ]


def target_only(options: DecodingOptions) -> Transcription:
    return InlinePair(speaker(), voice=find_voice()).transcribe([PCM], options)[0]


async def check_cut(options: DecodingOptions, mode: Mode, cuts: list[int]) -> int:
    """Transcribe over connections that break, -1 before a session is open; return how many did."""
    checkpoint = scripted_checkpoint(vocabulary=MULTILINGUAL)
    config = pb.StreamingRecognitionConfig(config=config_to_proto(options, mode, 4, is_container=False))
    requests = [pb.StreamingRecognizeRequest(streaming_config=config), *audio_requests(PCM)]
    draft = speaker(MAX_SESSIONS, error_rate=0.2)
    async with (
        target_server(speaker(MAX_SESSIONS), checkpoint) as target,
        cut_network(target.address, cuts) as (network, cutting),
        draft_server(network.address, draft, scripted_checkpoint("draft", vocabulary=MULTILINGUAL)) as server,
    ):
        responses = [response async for response in server.stub.StreamingRecognize(iter(requests))]
        await all_free(target, server)
    expected = target_only(options)
    results = [result for response in responses for result in response.results]
    assert written(segments_from_proto(results)) == written(expected.segments)
    assert dict(responses[-1].language.probabilities) == pytest.approx(dict(expected.language_probs))
    return cutting.num_cut


@pytest.mark.parametrize("mode", mostly_nightly(MODES[::-1]))
async def test_wherever_a_connection_breaks_the_text_is_the_same(mode):
    for first in range(0, 60, 4 if NIGHTLY else 12):
        await check_cut(OPTIONS["detected language"], mode, [-1, -1, first, first + 1, -1, 0, 1, 2, 3])


@pytest.mark.parametrize("name", mostly_nightly(list(OPTIONS)[::-1]))
async def test_every_option_outlives_the_target(name):
    assert await check_cut(OPTIONS[name], Mode.FULL, [1, 5, 13, 0, 2, 21, 0, 0, 1, 1, 8, 34]) > 3


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
        requests = iter([streaming_config(), *audio_requests(recording(40.0))])
        error = await error_of(with_true_status(server.stub.StreamingRecognize(requests)))
        assert type(error) is SpecWhisperError
        await all_free(target, server)
    assert "The encoder has failed" in caplog.text and "target lost" not in caplog.text
