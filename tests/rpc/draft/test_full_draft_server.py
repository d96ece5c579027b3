"""A full draft server refuses whole recordings before it reads them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from io import BytesIO

import grpc
import pytest
from riva.client.proto import riva_audio_pb2

import specwhisper_draft_server.requests as own_requests
import specwhisper_riva.service as riva_service
from specwhisper.errors import ServerFull
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.rpc.riva_clients import pcm_config, refusal, riva_client
from tests.rpc.services import (
    RATE,
    all_free,
    error_of,
    eventually,
    expected_finals,
    finals,
    recording,
    running_pair,
    streaming_config,
    target_alone,
)

SECOND = recording(1.0)
METHODS = ("/specwhisper.wire.v1.Transcription/Recognize", "/nvidia.riva.asr.RivaSpeechRecognition/Recognize")


@asynccontextmanager
async def full_server():
    """A draft server whose only session is open until the end."""
    async with running_pair(max_sessions=1) as (target, draft):
        holder = draft.stub.StreamingRecognize()
        await holder.write(streaming_config())
        await eventually(lambda: draft.service.num_sessions == 1)
        yield draft
        holder.cancel()
        await all_free(target, draft)


@pytest.fixture
def num_decoded_bytes(monkeypatch) -> list[int]:
    """Return a list with the bytes of each recording that was decoded."""
    seen: list[int] = []

    def noting(real):
        def note(audio, *args, **kwargs):
            seen.append(len(audio.getvalue() if isinstance(audio, BytesIO) else audio.audio))
            return real(audio, *args, **kwargs)

        return note

    monkeypatch.setattr(own_requests, "decode_file", noting(own_requests.decode_file))
    monkeypatch.setattr(riva_service, "whole_audio", noting(riva_service.whole_audio))
    return seen


@pytest.mark.parametrize("method", METHODS)
async def test_a_full_server_does_not_read_a_recording(method):
    async with full_server() as draft:
        error = await error_of(draft.channel.stream_unary(method)())  # sends nothing
        assert type(error) is ServerFull


@pytest.mark.parametrize("method", METHODS)
async def test_a_recording_being_sent_counts_as_a_session(method):
    async with running_pair(max_sessions=1) as (target, draft):
        sending = draft.channel.stream_unary(method)()
        await eventually(lambda: draft.service.num_sessions == 1)
        error = await error_of(draft.stub.Recognize(pb.RecognizeRequest(audio=SECOND)))
        assert type(error) is ServerFull
        sending.cancel()
        await all_free(target, draft)


async def test_a_full_server_does_not_decode_a_recording(num_decoded_bytes):
    async with full_server() as draft:
        request = pb.RecognizeRequest(audio=b"not audio, which only a server with room would report")
        for _ in range(10):
            error = await error_of(draft.stub.Recognize(request))
            assert type(error) is ServerFull
            assert error.retry_after_s == 1.0
    assert not num_decoded_bytes


async def test_a_full_server_does_not_decode_a_recording_of_rivas_client(num_decoded_bytes):
    async with full_server() as draft, riva_client(draft) as client:
        config = pcm_config(encoding=riva_audio_pb2.MULAW, model="a model that is not here")
        for _ in range(10):
            status, details = await refusal(client.recognize(SECOND, config))
            assert status is grpc.StatusCode.RESOURCE_EXHAUSTED, details
    assert not num_decoded_bytes


async def test_a_server_with_room_decodes_both_recordings(num_decoded_bytes, tmp_path):
    """This is the control of the tests above."""
    import soundfile

    path = tmp_path / "speech.flac"
    soundfile.write(path, memoryview(SECOND).cast("h"), RATE)
    async with running_pair() as (target, draft), riva_client(draft) as client:
        response = await draft.stub.Recognize(pb.RecognizeRequest(audio=path.read_bytes()))
        assert finals([response]) == expected_finals(target_alone(1.0))
        (result, *_) = (await client.recognize(SECOND, pcm_config())).results
        assert result.alternatives[0].transcript
        await all_free(target, draft)
    assert set(num_decoded_bytes) == {path.stat().st_size, len(SECOND)}
