"""Which arms there are, the weights' names at openai's, and the way from runs to ratios and bars."""

import sys

import pytest
import torch

from experiments.common.audio.samples import Sample
from experiments.common.models.checkpoints import Shape, build_model, save_checkpoint
from experiments.common.models.scripted import VOCABULARY
from experiments.common.replay.trace import Decoding, Trace
from experiments.exactness.prepared import recording
from experiments.peers.arms import FLOAT32, INT8, Arm, Part, Piece, Run, System, Taken, all_arms
from experiments.peers.faster_whisper_peer import NUM_PROMPT, max_new_tokens
from experiments.peers.ggml_weights import save_ggml
from experiments.peers.openai_weights import dimensions, openai_name, openai_state
from experiments.peers.prepared import pieces_of
from experiments.peers.summary import bars, claims, summarise
from experiments.peers.texts import differences, word_error_rates
from experiments.peers.whisper_cpp_peer import WhisperCppPeer
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode
from tests.nightly import mostly_nightly


def arm(system, precision=FLOAT32, *, part=Part.DEMO, timestamps=False):
    return Arm(part, system, precision, timestamps)


def test_missing_packages_are_reported_with_a_reason(monkeypatch):
    monkeypatch.setattr("experiments.peers.arms.find_spec", lambda name: None if name == "numba" else sys)
    arms, missing = all_arms(list(Part))
    openai = arm(System.OPENAI_WHISPER, part=Part.SHAPE, timestamps=True)
    assert missing[openai] == "not installed: numba"
    assert all("fixed vocabulary" in reason for of, reason in missing.items() if of.part is Part.DEMO)
    assert not set(arms) & missing.keys()
    assert {one.system for one in arms if one.part is Part.DEMO} == {*System} - {
        System.OPENAI_WHISPER,
        System.WHISPER_CPP,
    }


def test_assisted_generation_runs_without_timestamps_and_with_real_weights_only():
    arms, missing = all_arms(list(Part))
    assert [one for one in (*arms, *missing) if one.system is System.ASSISTED] == [arm(System.ASSISTED)]


def test_a_quick_run_can_still_judge_the_claims_in_float32():
    arms, missing = all_arms(list(Part), quick=True)
    for claim in claims():
        if claim.ours.precision == FLOAT32:
            assert {claim.ours, *claim.theirs} <= {*arms, *missing}
    assert not any(one.precision == INT8 for one in arms)


@pytest.mark.parametrize("num_tokens", [1, 3, 4, 5, 90, 224])
def test_ctranslate2_writes_the_requested_number_of_tokens(num_tokens):
    length = NUM_PROMPT + max_new_tokens(num_tokens)  # as faster-whisper passes it on
    assert min(length // 2, length - NUM_PROMPT) == num_tokens
    assert length <= 448


def test_weights_have_openais_names():
    assert openai_name("model.encoder.layers.3.self_attn.k_proj.weight") == "encoder.blocks.3.attn.key.weight"
    assert openai_name("model.decoder.layers.0.encoder_attn_layer_norm.bias") == (
        "decoder.blocks.0.cross_attn_ln.bias"
    )
    assert openai_name("model.encoder.layer_norm.bias") == "encoder.ln_post.bias"
    assert openai_name("model.decoder.embed_positions.weight") == "decoder.positional_embedding"


@pytest.mark.filterwarnings("ignore")
def test_openais_model_computes_the_same_from_our_weights():
    pytest.importorskip("numba")
    whisper = pytest.importorskip("whisper.model")
    model, _ = build_model(Shape(d_model=32, ffn_factor=4))
    theirs = whisper.Whisper(whisper.ModelDimensions(**dimensions(model.config)))
    theirs.load_state_dict(openai_state(model.state_dict()))
    features, ids = torch.randn(1, 80, 3000), torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        expected = model(input_features=features, decoder_input_ids=ids).logits
        assert torch.allclose(theirs(features, ids), expected, atol=1e-3)


@pytest.mark.parametrize("is_int8", mostly_nightly([False, True]))
def test_whisper_cpp_writes_the_same_from_our_weights(is_int8, tmp_path):
    pytest.importorskip("_pywhispercpp")
    shape = Shape(words="multilingual", d_model=128, decoder_layers=1, ffn_factor=4)
    folder = save_checkpoint(shape, tmp_path / "saved")
    path = save_ggml(str(folder), tmp_path / "model.ggml", is_int8=is_int8)
    pcm = recording(1, 3.0)
    run = WhisperCppPeer(path).decode([Piece(pcm, 8)])
    target = WhisperModel(load_checkpoint(str(folder)), 1)
    options = DecodingOptions.greedy(language="en", timestamps=False)
    [ours] = InlinePair(target, mode=Mode.TARGET_ONLY, max_new_tokens=8).transcribe([pcm], options)
    assert len(run.tokens[0]) == 8
    assert run.tokens[0][0] == ours.window_tokens[0][0]  # it rounds, so later ones may differ


def decoding(recording, start_frame, prompt, tokens):
    return Decoding(recording, start_frame, "", prompt, 0.0, tokens, (), ())


def test_peers_get_the_windows_that_the_target_opened():
    pcm = bytes(i // 32_000 for i in range(40 * 32_000))  # each second has a value of its own
    trace = Trace(
        *("", "", "", "", "", ""),
        decodings=(
            decoding("b", 0, (1,), (5,)),
            decoding("a", 1_000, (1,), (5, 6)),
            decoding("a", 0, (1,), (5, 6, 7)),
            decoding("a", 0, (1, 9), (5, 6, 7, 8)),  # without timestamps
        ),
    )
    first, second = pieces_of(trace, [Sample("a", pcm, {})], no_timestamps=9)
    assert (first.num_tokens, first.pcm) == (3, pcm[: 30 * 32_000])
    assert (second.num_tokens, second.pcm) == (2, pcm[10 * 32_000 :])


def taken(number, of, wall_s, tokens=((1, 2),), num_committed=10):
    statistics = SpeculationStatistics(num_committed=num_committed) if of.system.is_ours else None
    return Taken(number, of, Run(wall_s, tokens, statistics))


def test_times_per_token_use_our_float32_targets_tokens():
    rounds = [
        taken(0, arm(System.TARGET_ONLY), 1.0),
        taken(0, arm(System.TARGET_ONLY, INT8), 1.0, num_committed=20),
        taken(0, arm(System.TRANSFORMERS), 2.0),
        taken(0, arm(System.FASTER_WHISPER, part=Part.SHAPE, timestamps=True), 3.0),
    ]
    summaries = summarise(rounds, {Part.DEMO: 4.0, Part.SHAPE: 6.0}, num_pieces_tokens=30)
    assert [s.token_ms for s in summaries.values()] == [(100.0,), (100.0,), (200.0,), (100.0,)]
    assert [s.audio_ms for s in summaries.values()] == [(250.0,), (250.0,), (500.0,), (500.0,)]


@pytest.mark.parametrize(("ours_s", "holds"), [(0.6, True), (0.7, False)])
def test_a_claim_uses_the_intervals_upper_end_and_needs_its_peer(ours_s, holds):
    first, *others = claims()
    ours, (assisted,) = first.ours, first.theirs
    rounds = [
        taken(number, of, slowdown * wall_s)
        for number, slowdown in enumerate((1.0, 3.0))
        for of, wall_s in ((arm(System.TARGET_ONLY), 1.0), (ours, ours_s), (assisted, 1.0))
    ]
    (bar,), open_claims = bars(summarise(rounds, {Part.DEMO: 1.0}, 0), seed=0)
    assert bar.holds is holds
    assert len(open_claims) == len(others)
    assert all(line.endswith("not measured") for line in open_claims)


def test_only_float32_must_equal_the_targets_text():
    other = ((1, 3),)
    rounds = [
        taken(0, arm(System.TARGET_ONLY), 1.0),
        taken(0, arm(System.ONE_PROCESS), 1.0, other),
        taken(0, arm(System.TARGET_ONLY, INT8), 1.0),
        taken(0, arm(System.ONE_PROCESS, INT8), 1.0, other),
        taken(0, arm(System.FASTER_WHISPER), 1.0, other),
        taken(0, arm(System.FASTER_WHISPER, part=Part.SHAPE, timestamps=True), 1.0, ((1,),)),
    ]
    summaries = summarise(rounds, {Part.DEMO: 1.0, Part.SHAPE: 1.0}, num_pieces_tokens=2)
    broken, noted = differences(summaries, [Piece(b"", 2)])
    assert [line.partition(":")[0] for line in broken] == ["demo pair", "shape"]
    assert len(noted) == 1
    assert "int8" in noted[0]


def test_texts_of_unknown_recordings_are_not_scored():
    summaries = summarise([taken(0, arm(System.TARGET_ONLY), 1.0, ((0, 1),))], {Part.DEMO: 1.0}, 0)
    assert word_error_rates(summaries, [Sample("mine.wav", b"", {})], VOCABULARY) == {}
    known = [Sample("01_phone_call.flac", b"", {})]
    assert word_error_rates(summaries, known, VOCABULARY).keys() == {arm(System.TARGET_ONLY)}
