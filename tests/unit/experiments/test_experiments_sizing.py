"""The sizing guide's arithmetic is what models really take."""

import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.sizing.__main__ import SHAPES
from experiments.sizing.hint import measure_hint
from experiments.sizing.memory import num_sessions, num_weights, slot_bytes
from specwhisper.model.model import WhisperModel

GIB = 2**30


@pytest.mark.parametrize("name", ["tiny", "large-v3", "distil-large-v3"])
def test_weights_are_as_many_as_transformers_has(name):
    shape = SHAPES[name]
    config = WhisperConfig(
        vocab_size=51_866 if shape.cantonese else 51_865,
        num_mel_bins=shape.num_mel_bins,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=4 * shape.d_model,
        decoder_ffn_dim=4 * shape.d_model,
    )
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    assert num_weights(shape) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("cross_cache", [None, "int8"])
def test_memory_of_a_slot_matches_the_model(cross_cache):
    shape = Shape()
    model = WhisperModel(build_checkpoint(shape)[1], 2, has_static_shapes=True, cross_cache_dtype=cross_cache)
    assert slot_bytes(shape, "float32", cross_cache) == model.bytes_per_slot


def test_large_v3_takes_320_mb_a_session():
    assert slot_bytes(PUBLISHED["large-v3"], "float16") / 1e6 == pytest.approx(320, rel=0.01)


def test_the_largest_number_of_sessions_that_fit():
    shape, reserved = PUBLISHED["large-v3"], 3 * GIB
    held = num_sessions(80 * GIB, shape, "float16", reserved_bytes=reserved)
    taken = [
        (held + 1 + more) * slot_bytes(shape, "float16") + 2 * num_weights(shape) + reserved
        for more in (0, 1)
    ]
    assert taken[0] <= 80 * GIB < taken[1]
    assert num_sessions(4 * GIB, shape, "float16", reserved_bytes=reserved) == 0


def test_the_longest_hint_takes_some_megabytes():
    hint = measure_hint()
    assert 2e6 < hint.tokens < 4e6
    assert 12e6 < hint.searched < 24e6
