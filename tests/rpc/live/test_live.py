"""Live audio over real connections: text during speech, and no word lost."""

import asyncio

import pytest

from experiments.common.models.speech import LENGTH_S, SPANS, SPOKEN, spoken_utterances, talk
from specwhisper.errors import InvalidRequest
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.v1 import decoding_pb2, resume_point_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.nightly import mostly_nightly
from tests.rpc.services import (
    all_free,
    audio_requests,
    check_error,
    error_of,
    eventually,
    refusal,
    rest_of,
)
from tests.rpc.speaking import config, final_results, listen, speaking_pair, texts_of

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


LIVE_MODES = ("MODE_TARGET_ONLY", "MODE_FULL")


@pytest.mark.parametrize("piece_bytes", mostly_nightly([1_001, 3_200, 64_000]))
async def test_final_results_are_in_order_in_every_mode(draft, piece_bytes):
    pcm = talk()
    assert len(spoken_utterances(pcm)) == 3
    for mode in LIVE_MODES:
        responses = await listen(draft, pcm, piece_bytes, mode=mode)
        results = final_results(responses)
        assert texts_of(results) == spoken_utterances(pcm)
        assert all(result.is_final for response in responses for result in response.results)
        assert [result.utterance for result in results if result.is_utterance_end] == [1, 2, 3]
        starts = [result.start_offset.ToNanoseconds() for result in results]
        ends = [result.end_offset.ToNanoseconds() for result in results]
        assert all(begin <= end for begin, end in zip(starts, ends, strict=True))
        assert all(end <= begin for end, begin in zip(ends, starts[1:], strict=False))
        assert ends[-1] <= LENGTH_S * 1e9
        statistics = responses[-1].statistics
        assert statistics.num_windows >= 3
        assert responses[-1].audio_received.ToNanoseconds() == LENGTH_S * 1e9


async def test_a_session_with_a_draft_reports_how_it_runs_whatever_is_asked(draft):
    responses = await listen(draft, talk(), mode="MODE_SYNC", gamma=3)
    [model] = [response.model for response in responses if response.HasField("model")]
    assert (model.mode, model.gamma) == (decoding_pb2.MODE_FULL, 0)
    assert responses[-1].statistics.gamma == 0, "it sends whole texts"


async def test_speech_events_report_where_utterances_begin_and_end_and_all_open_text(draft):
    responses = await listen(draft, talk(), interim=True)
    events = [
        (response.speech_event, response.speech_event_offset.ToNanoseconds() / 1e9)
        for response in responses
        if response.speech_event
    ]
    assert [event for event, _ in events] == [pb.SPEECH_EVENT_BEGIN, pb.SPEECH_EVENT_END] * 3
    padding_s, tail_s, frame_s = 0.3, 0.2, 0.032 + 0.02  # and a timestamp
    for (begin_s, end_s), (_, reported_begin_s), (_, reported_end_s) in zip(
        SPANS, events[::2], events[1::2], strict=True
    ):
        assert begin_s - padding_s - frame_s <= reported_begin_s <= begin_s
        assert end_s <= reported_end_s <= end_s + tail_s + frame_s
    shown: list[str] = []
    for response in responses:
        text = [result.alternatives[0].transcript for result in response.results if not result.is_final]
        if response.speech_event:
            assert text == shown
        elif response.HasField("audio_received"):
            shown = text


@pytest.mark.parametrize("confirm_every_ms", [None, 300])
async def test_interim_results_are_all_open_text_the_most_stable_first(confirm_every_ms, monkeypatch):
    """Each follows the final text before it; only a word that the end of the audio cuts off may be wrong."""
    monkeypatch.setattr("specwhisper_draft_server.session.INTERVAL_S", 0.0)
    pcm, live = talk(), {"step_ms": 300} | ({"confirm_every_ms": 300} if confirm_every_ms else {})
    async with speaking_pair(error_rate=0.0) as (target, draft):
        call = with_true_status(draft.stub.StreamingRecognize())
        await call.write(config(interim=True, live=live))
        reading = asyncio.create_task(rest_of(call))
        for request in audio_requests(pcm, 3_200):
            await call.write(request)
            await eventually(lambda: not target.service._verifier.has_work)
        await call.done_writing()
        responses = await reading
    whole = SPOKEN.decode([token for text in spoken_utterances(pcm).values() for token in text])
    stabilities, final = set(), ""
    for response in responses:
        finals = [result for result in response.results if result.is_final]
        interim = [result for result in response.results if not result.is_final]
        assert list(response.results) == [*finals, *interim], "final results come first"
        stable = [round(result.stability, 1) for result in interim]
        assert stable == sorted(set(stable), reverse=True), "the draft's text follows"
        stabilities.update(stable)
        assert all(result.alternatives[0].transcript for result in interim)
        final += "".join(result.alternatives[0].transcript for result in finals)
        shown = final + "".join(result.alternatives[0].transcript for result in interim)
        # The target's text of a growing piece may be wrong where the piece ends.
        assert confirm_every_ms or whole.startswith(shown[:-1].rstrip())
    assert final == whole
    assert stabilities >= ({0.9, 0.1} if confirm_every_ms else {0.5, 0.1})


@pytest.mark.parametrize("mode", LIVE_MODES)
async def test_only_interim_text_is_debounced(mode, monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.session.INTERVAL_S", 3_600.0)
    async with speaking_pair() as (target, draft):
        responses = await listen(draft, talk(), mode=mode, interim=True)
        await all_free(target, draft)
    assert texts_of(final_results(responses)) == spoken_utterances(talk())
    num_events = sum(bool(response.speech_event) for response in responses)
    assert num_events == 2 * len(SPANS)
    interim = [response for response in responses if response.results and not response.speech_event]
    num_urgent = num_events + responses[-1].statistics.num_windows
    assert len(interim) <= 1 + num_urgent, "all but the first arrive with other responses"


async def test_audio_of_at_most_a_frame_has_no_text(draft):
    responses = await listen(draft, bytes(100), disabled=True)
    assert final_results(responses) == []


AUDIO = pb.StreamingRecognizeRequest(audio_content=bytes(3_200))


def resumed(position: dict) -> pb.StreamingRecognizeRequest:
    state = resume_point_pb2.ResumePointState(
        protocol_version=PROTOCOL_VERSION, weights_digest="digest of scripted", live=position
    )
    request = config()
    request.streaming_config.resume_point.state = state.SerializeToString()
    return request


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (config(live={"step_ms": 50}), "step_ms is 50"),
        (config(endpointing={"threshold": 0.99}), "threshold is 0.99"),
        (resumed({"next_sample": 320, "pieces": [{"tokens": [1] * 449}]}), "449 final tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_request_that_does_not_fit_live_audio_is_refused(draft, first, sentence):
    check_error(await refusal(draft, first, AUDIO), InvalidRequest, sentence)


@pytest.mark.parametrize("field", [{"endpointing": {"disabled": True}}, {"continue_unverified": True}])
async def test_settings_of_live_audio_are_refused_for_recordings(draft, field):
    recording = pb.RecognitionConfig(encoding="AUDIO_ENCODING_LINEAR16", sample_rate_hertz=SAMPLE_RATE)
    first = pb.StreamingRecognizeRequest(
        streaming_config=pb.StreamingRecognitionConfig(config=recording, **field)
    )
    whole = pb.RecognitionConfig(decoding={"live": {"step_ms": 500}})
    check_error(await refusal(draft, first, AUDIO), InvalidRequest, "set decoding.live")
    error = await error_of(draft.stub.Recognize(pb.RecognizeRequest(config=whole, audio=b"RIFF")))
    check_error(error, InvalidRequest, "is not live")
