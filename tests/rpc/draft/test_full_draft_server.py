"""A full draft server refuses whole recordings before it reads them."""

from contextlib import asynccontextmanager

import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.rpc.services import all_free, error_of, eventually, recording, running_pair, streaming_config

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


@pytest.mark.parametrize("method", METHODS)
async def test_a_full_server_does_not_read_a_recording(method):
    async with full_server() as draft:
        for call in (
            draft.channel.stream_unary(method)(),  # sends nothing
            with_true_status(draft.stub.StreamingRecognize(iter([streaming_config()]))),
        ):
            error = await error_of(call)
            assert type(error) is ServerFull
            assert "draft server holds its 1 sessions" in str(error)


@pytest.mark.parametrize("method", METHODS)
async def test_a_recording_being_sent_counts_as_a_session(method):
    async with running_pair(max_sessions=1) as (target, draft):
        sending = draft.channel.stream_unary(method)()
        await eventually(lambda: draft.service.num_sessions == 1)
        error = await error_of(draft.stub.Recognize(pb.RecognizeRequest(audio=SECOND)))
        assert type(error) is ServerFull
        sending.cancel()
        await all_free(target, draft)
