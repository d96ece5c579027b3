"""Riva's service refuses unsupported requests in one sentence."""

import sys

import grpc
import pytest
from riva.client.proto import riva_asr_pb2 as riva_pb

from specwhisper.errors import UnsupportedOption
from specwhisper_draft_server.config import DraftConfig
from specwhisper_riva.settings import riva_services
from tests.rpc.riva_clients import (
    in_thread,
    live_config,
    pcm_config,
    pieces,
    refusal,
    riva_client,
    service_settings,
)
from tests.rpc.services import eventually, is_one_sentence, recording, running_pair, streaming_config

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SPEAKERS = riva_pb.SpeakerDiarizationConfig(enable_speaker_diarization=True)


def check(status: grpc.StatusCode, details: str, words: str) -> None:
    assert status is INVALID
    assert words in details
    assert is_one_sentence(details)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"diarization_config": SPEAKERS}, "enable_speaker_diarization out"),
        ({"language_code": "tlh-KX"}, "English-only"),
        ({"sample_rate_hertz": -1}, "sample_rate_hertz is -1"),
    ],
    ids=["speakers", "by the target", "by the audio"],
)
async def test_unsupported_requests_are_refused_in_one_sentence(client, settings, words):
    check(*await refusal(client.recognize(recording(1.0), pcm_config(**settings))), words)
    check(*await refusal(client.stream(pieces(recording(1.0)), live_config(**settings))), words)


async def test_what_holds_no_audio(client):
    unnamed = riva_pb.RecognitionConfig()
    for call, words in (
        (client.stream([], live_config()), "holds no audio"),
        (client.stream([b""], live_config()), "holds no audio"),
        (client.recognize(b"no audio" * 100, unnamed), "cannot be decoded"),
        (client.recognize(b"", pcm_config()), "empty"),
        (client.recognize(b"", unnamed), "no audio samples"),
    ):
        check(*await refusal(call), words)


async def test_a_stream_that_does_not_begin_with_its_config(client):
    stub = client.service.stub
    audio = riva_pb.StreamingRecognizeRequest(audio_content=b"12")
    config = riva_pb.StreamingRecognizeRequest(streaming_config=live_config())
    for requests, words in (
        ([], "begins with streaming_config"),
        ([audio], "begins with streaming_config"),
        ([config, audio, config], "one streaming_config"),
    ):
        call = in_thread(lambda requests=requests: list(stub.StreamingRecognize(iter(requests))))
        check(*await refusal(call), words)


async def test_a_full_server_refuses_the_call():
    async with running_pair(max_sessions=1) as (_, draft), riva_client(draft) as client:
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config())
        await eventually(lambda: draft.service.num_sessions == 1)
        status, details = await refusal(client.stream(pieces(recording(1.0)), live_config()))
        call.cancel()
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "try again later" in details


async def test_a_server_without_the_service():
    async with running_pair(**service_settings(riva=False)) as (_, draft), riva_client(draft) as client:
        status, _ = await refusal(client.recognize(recording(1.0), pcm_config()))
        assert status is grpc.StatusCode.UNIMPLEMENTED


def test_without_rivas_client_the_service_is_left_out_unless_required(monkeypatch):
    monkeypatch.setitem(sys.modules, "riva.client.proto.riva_asr_pb2_grpc", None)
    assert not riva_services(None, DraftConfig(**service_settings(riva=None)))
    with pytest.raises(UnsupportedOption, match=r"--riva needs .* pip install"):
        riva_services(None, DraftConfig(**service_settings(riva=True)))
