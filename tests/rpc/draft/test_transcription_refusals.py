"""A draft server refuses invalid requests in one sentence, and serves the next."""

import pytest

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.engine.process import prepare_process
from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    MessageTooLarge,
    PairMismatch,
    ServerFull,
    UnsupportedOption,
)
from specwhisper.rpc.tokens import Tokens
from specwhisper.settings.shared import parse_cores
from specwhisper.types import Mode
from specwhisper.wire import flac
from specwhisper.wire.status import DEFAULT_PORTS
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.whisper import load_draft
from specwhisper_target_server.config import TargetConfig
from tests.rpc.services import (
    all_free,
    audio_requests,
    check_error,
    check_text,
    draft_server,
    error_of,
    eventually,
    recording,
    refusal,
    running_pair,
    stream,
    streaming_config,
    target_server,
)

SECOND = recording(1.0)
AUDIO = audio_requests(SECOND)


def config(**fields) -> list[pb.StreamingRecognizeRequest]:
    return [streaming_config(**fields), *AUDIO]


def with_options(**options: object) -> list[pb.StreamingRecognizeRequest]:
    """Return the messages of a stream with decoding options."""
    return config(decoding=decoding_pb2.DecodingOptions(greedy=True, **options))


STREAMS = {
    "nothing": ([], InvalidRequest, "begins with streaming_config"),
    "audio first": (AUDIO, InvalidRequest, "begins with streaming_config"),
    "a second config": ([*config(), *config()], InvalidRequest, "takes audio_content, flac_content"),
    "a container": (config(encoding=0), InvalidRequest, "must be LINEAR16"),
    "no sample rate": (config(sample_rate_hertz=0), InvalidAudio, "sample rate of 0 Hz"),
    "no audio": ([streaming_config()], InvalidAudio, "is empty"),
    "a piece too large": (
        [streaming_config(), *audio_requests(recording(3.0), 70_000)],
        MessageTooLarge,
        "70000 bytes.*65536",
    ),
    "FLAC of more samples than a piece has": (
        [streaming_config(), pb.StreamingRecognizeRequest(flac_content=flac.encode(bytes(65_538)))],
        InvalidAudio,
        "more than 32768 samples",
    ),
    "another language": (with_options(languages=["de-DE"]), UnsupportedOption, "English-only"),
    "an unknown compression ratio": (with_options(compression_ratio_of=9), InvalidRequest, "Ratio 9"),
    "an invalid probability": (with_options(top_p=float("nan")), InvalidRequest, "top_p is nan"),
    "gamma 65": (config(gamma=65), InvalidRequest, "between 1 and 64"),
}
LINEAR = {"encoding": "AUDIO_ENCODING_LINEAR16", "sample_rate_hertz": 16_000}
RECORDINGS = {
    "corrupt bytes": ({}, b"RIFF, or so", InvalidAudio, "cannot be decoded"),
    "no bytes": ({}, b"", InvalidAudio, "no audio samples"),
    "no samples": (LINEAR, b"", InvalidAudio, "is empty"),
    "too large": (LINEAR, bytes(70_000), MessageTooLarge, "70.* exceeds the 66000 bytes"),
}


async def check_served(target, draft) -> None:
    """Check that the next client is served and no session is left."""
    await check_text(draft)
    await all_free(target, draft)


@pytest.mark.parametrize("case", STREAMS)
async def test_an_invalid_stream(target, draft, case):
    requests, error_type, words = STREAMS[case]
    error = await refusal(draft, *requests)
    await check_served(target, draft)
    check_error(error, error_type, words)


@pytest.mark.parametrize("case", RECORDINGS)
async def test_an_invalid_recording(case):
    fields, audio, error_type, words = RECORDINGS[case]
    request = pb.RecognizeRequest(config=pb.RecognitionConfig(**fields), audio=audio)
    async with running_pair(max_message_bytes=66_000) as (target, draft):
        error = await error_of(draft.stub.Recognize(request))
        await check_served(target, draft)
    check_error(error, error_type, words)


async def test_the_error_for_an_unknown_language_names_the_known_ones():
    _, checkpoint = build_checkpoint(Shape(d_model=32, decoder_layers=1), "small")
    async with (
        target_server(checkpoint=checkpoint) as target,
        draft_server(target.address, drafts=False, mode=Mode.TARGET_ONLY) as draft,
    ):
        error = await refusal(draft, *with_options(languages=["xx"]))
        await all_free(target, draft)
    check_error(error, UnsupportedOption, "'xx' is unknown to this model; it has: af, am, ")


async def test_a_mode_that_needs_a_draft_on_a_server_without_one(target):
    async with draft_server(target.address, drafts=False, mode=Mode.TARGET_ONLY) as draft:
        error = await refusal(draft, *config(mode="MODE_FULL"))
        await check_served(target, draft)
    check_error(error, UnsupportedOption, "without a draft model.*full is not offered")


@pytest.mark.parametrize("mode", ["MODE_TARGET_ONLY", "MODE_FULL"])
async def test_a_token_that_the_target_refuses_is_not_taken_for_the_clients(mode):
    async with (
        target_server(tokens=Tokens({"a" * 32: "another draft server"})) as target,
        draft_server(target.address) as draft,
    ):
        error = await error_of(stream(draft, SECOND, mode=mode))
        assert type(error) is PairMismatch
        assert f"Target {target.address} refuses this draft server's token" in str(error)
        assert "--target-token-file" in str(error)


def test_cores_are_parsed():
    assert parse_cores("0") == (0,)
    assert parse_cores("0,2-4,7") == (0, 2, 3, 4, 7)
    for text in ("", "a", "1-", "-1", "0,,1", "1-x", "3-1", "0-99999999999", "4096"):
        with pytest.raises(InvalidRequest, match=f"cores is '{text}'"):
            TargetConfig(cores=text)
    with pytest.raises(InvalidRequest, match=r"cores is \[4095\], but this process may use \["):
        prepare_process("cpu", None, (4095,))


def test_windows_are_cut_on_onnx_runtime_only():
    config = DraftConfig(draft_model="demo-draft-tiny", dtype="bfloat16", cut_windows=True)
    with pytest.raises(UnsupportedOption, match="--cut-windows is for ONNX Runtime, not for pytorch"):
        load_draft(config)


async def test_another_service_at_the_targets_address_is_a_warning(caplog):
    async with draft_server("127.0.0.1:1") as other, draft_server(other.address) as mistaken:
        await mistaken.service.prepare()
    (record,) = [each for each in caplog.records if each.getMessage() == "not paired yet"]
    assert record.levelname == "WARNING"
    assert record.error == (
        f"The server at target {other.address} does not offer this service: {DEFAULT_PORTS}."
    )


METHODS = ("/specwhisper.wire.v1.Transcription/Recognize", "/nvidia.riva.asr.RivaSpeechRecognition/Recognize")


@pytest.mark.parametrize("method", METHODS)
async def test_a_recording_being_sent_counts_as_a_session_and_a_full_server_reads_none(method):
    async with running_pair(max_sessions=1) as (target, draft):
        sending = draft.channel.stream_unary(method)()
        await eventually(lambda: draft.service.num_sessions == 1)
        second = draft.channel.stream_unary(method)()  # sends nothing
        for error in (await error_of(second), await refusal(draft, streaming_config())):
            assert type(error) is ServerFull
            assert "draft server holds its 1 sessions" in str(error)
        sending.cancel()
        await all_free(target, draft)
