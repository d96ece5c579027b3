"""Clients of a draft server receive the target's text in every mode and format."""

from dataclasses import replace
from io import BytesIO
from itertools import product

import numpy as np
import pytest
import soundfile

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_checkpoint, save_checkpoint
from experiments.common.models.scripted import ScriptedModel
from specwhisper.audio.canonical import CanonicalStream
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import WINDOW_SAMPLES, Limits, Mode
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.encoding import note_encoded
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    RATE,
    audio_requests,
    check_statistics,
    check_text,
    draft_server,
    error_of,
    expected_finals,
    finals,
    recording,
    responses_to,
    running_pair,
    slowed,
    stream,
    streaming_config,
    target_alone,
    target_server,
    whole_request,
)


def flac(pcm: bytes) -> bytes:
    file = BytesIO()
    soundfile.write(file, np.frombuffer(pcm, "<i2"), RATE, format="FLAC")
    return file.getvalue()


async def test_a_recording_longer_than_the_limit_of_audio_ahead_in_every_mode(draft):
    length_s = 160.0
    assert length_s * RATE > Limits().max_ahead_samples + WINDOW_SAMPLES
    alone = target_alone(length_s)
    for mode in MODES:
        responses = await check_text(draft, length_s, mode=mode)
        check_statistics(responses[-1].statistics, alone)
        assert responses[0].model.mode == decoding_pb2.Mode.Value(mode)
        if mode in ("MODE_SYNC", "MODE_PIPELINED"):
            assert responses[-1].statistics.num_accepted > 0
        if mode == "MODE_TARGET_ONLY":
            assert responses[-1].statistics.num_blocks == 0
        assert responses[-1].audio_received.ToNanoseconds() == length_s * 1e9
        assert all(result.is_final for response in responses for result in response.results)


async def test_real_models_with_a_map_between_their_vocabularies():
    """Pair a draft of 80 mel bins with a target of 128, as tiny and large-v3."""
    target_shape = Shape(num_mel_bins=128, cantonese=True, max_target_positions=60)
    _, target_checkpoint = build_checkpoint(target_shape, "large")
    _, draft_checkpoint = build_checkpoint(Shape(d_model=32, max_target_positions=60, seed=1), "tiny")
    options = DecodingOptions.greedy(language="de")
    alone = InlinePair(WhisperModel(target_checkpoint, 1)).transcribe([recording(33.0)], options)[0]
    async with (
        target_server(checkpoint=target_checkpoint) as target,
        draft_server(target.address, checkpoint=draft_checkpoint) as draft,
    ):
        info = await draft.stub.GetModel(pb.GetModelRequest())
        assert (info.model.target, info.model.draft) == ("large", "tiny")
        assert list(info.log_mel_max_bins) == [80, 128]
        assert {"de", "yue"} <= set(info.languages)
        for mode in ("MODE_SYNC", "MODE_FULL"):
            responses = await stream(
                draft, recording(33.0), mode=mode, decoding={"languages": ["de-AT"], "greedy": True}
            )
            assert finals(responses) == expected_finals(alone)


@pytest.mark.parametrize("own", [{"d_model": 32, "seed": 1}, {}], ids=["own encoder", "shared encoder"])
async def test_a_target_in_the_same_process_writes_the_same_text(own, tmp_path, monkeypatch):
    shape = Shape(max_target_positions=60)
    _, target_checkpoint = build_checkpoint(shape, "target")
    _, draft_checkpoint = build_checkpoint(replace(shape, **own), "draft")
    folder = save_checkpoint(shape, tmp_path / "target")
    options = DecodingOptions.greedy(language="de")
    alone = InlinePair(WhisperModel(target_checkpoint, 1)).transcribe([recording(33.0)], options)[0]
    decoding = {"languages": ["de"], "greedy": True}
    encoded = note_encoded(monkeypatch)
    async with draft_server("127.0.0.1:1", checkpoint=draft_checkpoint, target_model=str(folder)) as draft:
        for mode in ("MODE_SYNC", "MODE_FULL"):
            encoded.clear()
            responses = await stream(draft, recording(33.0), mode=mode, decoding=decoding)
            assert finals(responses) == expected_finals(alone)
            statistics = responses[-1].statistics
            check_statistics(statistics, alone)
            if not own:
                assert len(encoded) == statistics.num_windows
                # In full mode a target this small may finish before a block arrives.
                assert statistics.num_accepted > 0 or mode == "MODE_FULL"
        error = await error_of(draft.stub.StreamingRecognize(iter([streaming_config()])))
        assert "The recording is empty" in str(error)


@pytest.mark.parametrize(("is_container", "length_s"), [(True, 65.0), (False, 3.0)])
async def test_recognize_a_whole_recording(draft, is_container, length_s):
    pcm, alone = recording(length_s), target_alone(length_s)
    request = pb.RecognizeRequest(audio=flac(pcm)) if is_container else whole_request(pcm)
    response = await draft.stub.Recognize(request)
    assert finals([response]) == expected_finals(alone)
    check_statistics(response.statistics, alone)
    assert response.audio_duration.ToNanoseconds() == length_s * 1e9
    assert response.model.draft == "scripted-draft"


async def test_interim_results_have_verified_text_before_tentative_text(monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.session.INTERVAL_S", 0.0)
    async with (
        target_server(slowed(ScriptedModel(MAX_SESSIONS))) as target,
        draft_server(target.address) as draft,
    ):
        # In full mode the target of a busy machine decodes alone, and no text of the draft is ahead of it.
        responses = await check_text(draft, 65.0, interim=True, mode="MODE_PIPELINED")
    stabilities = set()
    window, verified = None, ""
    for response in responses[1:]:
        is_final = [result.is_final for result in response.results]
        assert is_final == sorted(is_final, reverse=True), "final results come first"
        interim = [result for result in response.results if not result.is_final]
        assert [r.stability for r in interim] == sorted((r.stability for r in interim), reverse=True)
        stabilities |= {round(r.stability, 2) for r in interim}
        if texts := [r.alternatives[0].transcript for r in interim if r.stability > 0.5]:
            start, text = interim[0].start_offset.ToNanoseconds(), "".join(texts)
            assert window != start or text.startswith(verified), "verified text does not change"
            window, verified = start, text
    assert stabilities == {0.95, 0.9, 0.1}


async def test_any_gamma(draft):
    for mode, gamma in product(MODES[1:], (1, 3, 64)):
        responses = await check_text(draft, 3.0, mode=mode, gamma=gamma)
        assert responses[0].model.gamma == gamma


async def test_gamma_zero_uses_the_servers_setting():
    async with running_pair(gamma=3, mode=Mode.SYNC) as (_, draft):
        model = (await stream(draft, recording(1.0), gamma=0))[0].model
    assert (model.gamma, model.mode) == (3, 2)  # MODE_SYNC


async def test_raw_8_khz_stereo_is_resampled_and_mixed(draft):
    frames = np.random.default_rng(5).integers(-9_000, 9_000, (8_000 * 2, 2)).astype("<i2")
    canonical = CanonicalStream(8_000, 2)
    pcm = canonical.push(frames.tobytes()) + canonical.finish()
    alone = InlinePair(ScriptedModel()).transcribe([pcm])[0]
    config = streaming_config(sample_rate_hertz=8_000, audio_channel_count=2)
    # Pieces of odd length end within samples and within frames.
    responses = await responses_to(draft, config, *audio_requests(frames.tobytes(), 4_097))
    assert finals(responses) == expected_finals(alone)
    assert responses[-1].audio_received.ToNanoseconds() == 2e9


async def test_a_server_without_a_draft_writes_the_same_text(target):
    async with draft_server(target.address, drafts=False, mode=Mode.TARGET_ONLY) as draft:
        responses = await check_text(draft, 3.0)
        assert responses[0].model.draft == ""
        assert list((await draft.stub.GetModel(pb.GetModelRequest())).log_mel_max_bins) == [80, 128]
