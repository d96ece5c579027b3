"""Whatever bytes come in a call of any method, its sender is told what is wrong, and nobody else notices."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from riva.client.proto import riva_asr_pb2

from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import transcription_pb2, verification_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.fuzz.messages import messages, requests
from tests.fuzz.running import CALL_S, Running, examples
from tests.rpc.services import RATE, recording

FILES = {
    "target": [verification_pb2, health_pb2, reflection_pb2],
    "draft": [transcription_pb2, riva_asr_pb2, health_pb2, reflection_pb2],
}
METHODS = {
    f"{server} {service.full_name}/{method.name}": (server, method)
    for server, files in FILES.items()
    for file in files
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
# Of a request that cannot be served as it stands; everything else would be a defect.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.NOT_FOUND,  # a service whose health is asked for
}
FUZZED = settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))


async def status_of(channel: grpc.aio.Channel, path: str, sent: list[bytes]) -> grpc.StatusCode:
    """The status that a call ends with."""
    call = with_true_status(channel.stream_stream(path)(iter(sent), timeout=CALL_S))
    try:
        async for _ in call:
            pass
        return await call.code()
    except grpc.aio.AioRpcError as error:
        assert "Traceback" not in (error.details() or "")
        return error.code()


def check(running: Running, server: str, path: str, sent: list[bytes]) -> None:
    status = running.run(status_of(running.channels[server], path, sent))
    if path.endswith("/Watch"):  # which is not offered
        assert status in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT)
    else:
        assert status in REFUSALS | {grpc.StatusCode.OK}


def test_all_methods_are_here():
    assert len(METHODS) == 3 + 3 + 3 + 2 * (2 + 1)


@pytest.mark.parametrize("name", METHODS)
@FUZZED
@given(data=st.data())
def test_any_bytes(running, name, data):
    server, method = METHODS[name]
    most = 4 if method.client_streaming else 1
    sent = data.draw(st.lists(requests(method.input_type), max_size=most))
    check(running, server, f"/{method.containing_service.full_name}/{method.name}", sent)


class Piece(bytes):
    """Audio whose name is short."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


LIKELY = (recording(1.0), recording(1.0)[:3_201], recording(1.0)[:7], b"", b"RIFF\xff\xff\xff\xffWAVE")
PIECES = st.sampled_from([Piece(data) for data in LIKELY]) | st.binary(max_size=100)


@FUZZED
@given(
    config=messages(pb.StreamingRecognitionConfig.DESCRIPTOR),
    is_right=st.booleans(),
    pieces=st.lists(PIECES, max_size=4),
)
def test_any_options_of_a_stream(running, config, is_right, pieces):
    """Audio that could be transcribed, were it not for what is asked of it."""
    config.config.encoding, config.added_latency_ms = pb.AUDIO_ENCODING_LINEAR16, 0
    if is_right:
        config.config.sample_rate_hertz, config.config.audio_channel_count = RATE, 1
        config.config.language_code = "en"
        config.config.ClearField("mode")
    sent = [pb.StreamingRecognizeRequest(streaming_config=config)]
    sent += [pb.StreamingRecognizeRequest(audio_content=piece) for piece in pieces]
    path = "/specwhisper.wire.v1.Transcription/StreamingRecognize"
    check(running, "draft", path, [request.SerializeToString() for request in sent])


@FUZZED
@given(config=messages(pb.RecognitionConfig.DESCRIPTOR), is_bare=st.booleans(), audio=PIECES)
def test_any_options_of_a_recording(running, config, is_bare, audio):
    config.encoding = pb.AUDIO_ENCODING_LINEAR16 if is_bare else pb.AUDIO_ENCODING_UNSPECIFIED
    request = pb.RecognizeRequest(config=config, audio=audio).SerializeToString()
    check(running, "draft", "/specwhisper.wire.v1.Transcription/Recognize", [request])


@FUZZED
@given(
    config=messages(riva_asr_pb2.StreamingRecognitionConfig.DESCRIPTOR),
    is_right=st.booleans(),
    pieces=st.lists(PIECES, max_size=4),
)
def test_any_options_of_a_stream_of_riva(running, config, is_right, pieces):
    if is_right:
        config.config.sample_rate_hertz, config.config.encoding = RATE, 1
        config.config.language_code, config.config.model = "en-US", ""
        config.config.enable_separate_recognition_per_channel = False
        config.config.ClearField("diarization_config")
    sent = [riva_asr_pb2.StreamingRecognizeRequest(streaming_config=config)]
    sent += [riva_asr_pb2.StreamingRecognizeRequest(audio_content=piece) for piece in pieces]
    path = "/nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize"
    check(running, "draft", path, [request.SerializeToString() for request in sent])
