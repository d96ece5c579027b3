"""Sizes are read from a config.json as transformers reads them."""

import re
from dataclasses import MISSING, asdict, fields
from typing import Any

import pytest
from transformers import WhisperConfig

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes

CONFIG = WhisperConfig(
    d_model=96, encoder_attention_heads=3, num_mel_bins=128, median_filter_width=9
).to_dict()
OPTIONAL = [field.name for field in fields(ModelSizes) if field.default is not MISSING]


def test_every_size_is_read():
    """A scale of embeddings is not: transformers has the setting, and its decoder makes no use of it."""
    sizes = asdict(read_sizes("tiny", CONFIG | {"scale_embedding": True}))
    assert sizes == {name: CONFIG[name] for name in sizes}


def test_a_missing_size_is_transformers_default():
    for name in OPTIONAL:
        config = {key: value for key, value in CONFIG.items() if key != name}
        assert getattr(read_sizes("tiny", config), name) == getattr(WhisperConfig(), name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": None}, r"of model 'tiny' has d_model=None, which must be a whole number above 0"),
        ({"decoder_layers": 0}, r"has decoder_layers=0, which must be a whole number above 0"),
        ({"vocab_size": True}, r"has vocab_size=True, which must be a whole number"),
        ({"tie_word_embeddings": 1}, r"has tie_word_embeddings=1, which must be true or false"),
        ({"median_filter_width": 4}, r"has median_filter_width=4, which must be odd"),
        ({"activation_function": None}, r"has activation_function=None, which must be a name"),
        ({"decoder_attention_heads": 5}, r"divides d_model=96 by 5 attention"),
        ({"max_source_positions": 150}, "has max_source_positions=150, but windows of 30 s have 1500"),
    ],
)
def test_an_odd_value_is_refused_in_one_sentence(changes: dict[str, Any], message: str):
    with pytest.raises(CheckpointError, match=message) as raised:
        read_sizes("tiny", CONFIG | changes)
    assert re.search(r": (fetch or save it again|choose a model for windows of 30 s)\.$", str(raised.value))


def test_a_missing_value_without_default_is_named():
    config = {key: value for key, value in CONFIG.items() if key != "encoder_ffn_dim"}
    with pytest.raises(CheckpointError, match=r"config\.json of model 'tiny' has no encoder_ffn_dim"):
        read_sizes("tiny", config)
