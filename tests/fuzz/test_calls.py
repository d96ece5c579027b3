"""Any bytes to any method are refused with a reason, and harm no session."""

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import END, scripted_checkpoint
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Resume, Window
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.v1 import decoding_pb2, resume_point_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.fuzz.messages import messages, requests, resumes
from tests.fuzz.running import CALL_S, Running, fuzzed
from tests.rpc.methods import FILES, methods_of
from tests.rpc.services import RATE, recording, streaming_config

METHODS = {
    f"{server} {path.removeprefix('/')}": (server, path, method)
    for server, files in FILES.items()
    for path, method in methods_of(*files).items()
}
STREAM = "/specwhisper.wire.v1.Transcription/StreamingRecognize"
# The statuses of invalid requests; any other is a defect.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.NOT_FOUND,  # health of an unknown service
}
WEIGHTS = scripted_checkpoint().weights_digest


async def status_of(channel: grpc.aio.Channel, path: str, sent: list[bytes]) -> grpc.StatusCode:
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
    if path.endswith("/Watch"):  # not offered
        assert status in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT)
    else:
        assert status in REFUSALS | {grpc.StatusCode.OK}


@pytest.mark.parametrize("name", METHODS)
@fuzzed()
@given(data=st.data())
def test_any_bytes_to_any_method(running, name, data):
    server, path, method = METHODS[name]
    most = 4 if method.client_streaming else 1
    sent = data.draw(st.lists(requests(method.input_type), max_size=most))
    check(running, server, path, sent)


class Piece(bytes):
    """Audio whose repr is short."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


LIKELY = (recording(1.0), recording(1.0)[:3_201], recording(1.0)[:7], b"", b"RIFF\xff\xff\xff\xffWAVE")
WHOLE = [
    [Piece(pcm[at : at + 2 * RATE]) for at in range(0, len(pcm), 2 * RATE)]
    for pcm in (recording(1.0), recording(33.0))
]
PIECES = st.sampled_from([Piece(data) for data in LIKELY]) | st.binary(max_size=100)


@fuzzed()
@given(
    config=messages(pb.StreamingRecognitionConfig.DESCRIPTOR),
    is_right=st.booleans(),
    pieces=st.lists(PIECES, max_size=4),
)
def test_any_options_of_a_stream(running, config, is_right, pieces):
    """The audio is valid; the options may not be."""
    config.config.encoding, config.added_latency_ms = decoding_pb2.AUDIO_ENCODING_LINEAR16, 0
    if is_right:
        config.config.sample_rate_hertz, config.config.audio_channel_count = RATE, 1
        config.config.decoding.languages[:] = ["en"]
        config.config.ClearField("mode")
    sent = [pb.StreamingRecognizeRequest(streaming_config=config)]
    sent += [pb.StreamingRecognizeRequest(audio_content=piece) for piece in pieces]
    check(running, "draft", STREAM, [request.SerializeToString() for request in sent])


def resuming(
    state: resume_point_pb2.ResumePointState, pieces: list[bytes], start_sample: int = 0
) -> list[bytes]:
    """Return a stream that resumes at a forged resume point with valid digests."""
    state.protocol_version, state.weights_digest = PROTOCOL_VERSION, WEIGHTS
    live = {"live": {}} if state.HasField("live") else {}
    first = streaming_config(decoding={"languages": ["en"], **live})
    first.streaming_config.resume_point.state = state.SerializeToString()
    first.streaming_config.resume_point.start_sample = start_sample
    first.streaming_config.with_resume_points = True
    sent = [first, *(pb.StreamingRecognizeRequest(audio_content=piece) for piece in pieces)]
    return [request.SerializeToString() for request in sent]


@fuzzed()
@given(
    state=messages(resume_point_pb2.ResumePointState.DESCRIPTOR),
    resume=st.none() | resumes(),
    start_sample=st.sampled_from([0, 7, 320, 32_000, 2**63]),
    pieces=st.sampled_from(WHOLE) | st.lists(PIECES, max_size=4),
)
def test_any_resume_point_with_valid_digests(running, state, resume, start_sample, pieces):
    if resume is not None:
        state.recording.resume.CopyFrom(resume)
    check(running, "draft", STREAM, resuming(state, pieces, start_sample))


def test_a_forged_resume_point_that_is_valid_is_transcribed(running):
    """The fuzzing above can reach the decoder only if this succeeds."""
    resume = Resume(Window(1, 0, 3000, (END + 1,), 60), (), None, (), ())
    state = resume_point_pb2.ResumePointState(recording={"resume": codec.resume_to_proto(resume)})
    status = running.run(status_of(running.channels["draft"], STREAM, resuming(state, WHOLE[0])))
    assert status is grpc.StatusCode.OK


@fuzzed()
@given(config=messages(pb.RecognitionConfig.DESCRIPTOR), is_bare=st.booleans(), audio=PIECES)
def test_any_options_of_a_recording(running, config, is_bare, audio):
    config.encoding = (
        decoding_pb2.AUDIO_ENCODING_LINEAR16 if is_bare else decoding_pb2.AUDIO_ENCODING_UNSPECIFIED
    )
    request = pb.RecognizeRequest(config=config, audio=audio).SerializeToString()
    check(running, "draft", "/specwhisper.wire.v1.Transcription/Recognize", [request])
