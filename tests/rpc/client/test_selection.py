"""Channel, audio track and the container's times are chosen by clients."""

from pathlib import Path

import grpc
import pytest

from specwhisper.errors import InvalidAudio
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.streaming import StreamingClient
from tests.rpc.services import running_pair

FILES = Path(__file__).parents[2] / "data" / "files"
PAUSED = FILES / "gap10s.webm"  # 11 s with a pause of 10 s
ERRORS = {  # of what it does not have
    "audio_track": (2, "has no audio track 2: it has one audio track"),
    "channel": ("3", "no channel '3': the number of channels is 2"),
}


async def test_clients_select():
    data, asked = PAUSED.read_bytes(), {"channel": "right", "audio_track": 1}
    async with running_pair() as (_, draft), TranscriptionClient(draft.address) as client:
        for transcribe, file in ((client.transcribe_file, PAUSED), (client.recognize, data)):
            joined = await transcribe(file, container_times=False, language="en", **asked)
            assert joined.duration_s == pytest.approx(11, abs=0.1)
            for name, (value, error) in ERRORS.items():
                with pytest.raises(InvalidAudio, match=error):
                    await transcribe(file, **{name: value})


async def test_raw_samples_have_channels_too():
    async with running_pair() as (_, draft):
        config = pb.RecognitionConfig(
            encoding=decoding_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=16_000, audio_channel_count=2
        )
        config.channel = "3"
        with pytest.raises(grpc.aio.AioRpcError, match="no channel '3'"):
            await draft.stub.Recognize(pb.RecognizeRequest(config=config, audio=bytes(64_000)))
    with pytest.raises(InvalidAudio, match="no channel '3'"):
        StreamingClient(num_channels=2, channel="3")
