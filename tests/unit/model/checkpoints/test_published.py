"""Values that files do not state are those of published models."""

import ast
import base64
import gzip
import logging
from importlib.metadata import files

import numpy as np
import pytest
from transformers.models.whisper.tokenization_whisper import LANGUAGES as LANGUAGES_OF_TRANSFORMERS

from experiments.common.models.checkpoints import Shape, build_checkpoint, build_tokenizer
from specwhisper.languages import NAMES
from specwhisper.model.checkpoints.generation import build_vocabulary
from specwhisper.model.checkpoints.published import ALIGNMENT_HEADS, LANGUAGES, generation_of, special_tokens
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer

ENGLISH = Shape(words="gpt2", english_only=True, d_model=8, heads=1)
SHAPES = {
    "tiny.en": ENGLISH,
    "base": Shape(words="multilingual", d_model=8, heads=1),
    "large-v3": Shape(words="multilingual", cantonese=True, d_model=8, heads=1),
}


def tokenizer_of(shape: Shape) -> Tokenizer:
    return Tokenizer(build_tokenizer(shape).backend_tokenizer)


def test_languages_are_in_the_order_of_their_tokens():
    assert list(LANGUAGES_OF_TRANSFORMERS) == LANGUAGES
    assert set(LANGUAGES) == set(NAMES)


@pytest.mark.parametrize("name", SHAPES)
def test_tokens_and_rules_are_the_published_ones(name: str, caplog):
    caplog.set_level(logging.INFO)
    tokenizer, (_, expected) = tokenizer_of(SHAPES[name]), build_checkpoint(SHAPES[name])
    size = len(expected.vocabulary)
    assert tuple(special_tokens(size)) == expected.vocabulary.tokens[expected.vocabulary.end_of_text :]
    generation = generation_of("it", expected.sizes, tokenizer)
    assert build_vocabulary("it", tokenizer.tokens(), expected.sizes, generation) == expected.vocabulary
    assert "'it' names no suppressed tokens: they are those of openai-whisper." in caplog.text
    assert "no published model has its shape: it finds no word times." in caplog.text


def test_stated_values_count():
    stated = {"suppress_tokens": [7], "begin_suppress_tokens": [], "alignment_heads": [[0, 0]]}
    _, checkpoint = build_checkpoint(ENGLISH)
    values = generation_of("it", checkpoint.sizes, tokenizer_of(ENGLISH), stated).values
    assert {key: values[key] for key in stated} == stated


def test_alignment_heads_are_openais(caplog):
    caplog.set_level(logging.INFO)
    [package] = [file for file in files("openai-whisper") or () if str(file) == "whisper/__init__.py"]
    assignments = [node for node in ast.parse(package.read_text()).body if isinstance(node, ast.Assign)]
    [theirs] = [
        ast.literal_eval(node.value) for node in assignments if node.targets[0].id == "_ALIGNMENT_HEADS"
    ]
    for (encoder_layers, layers, width, size), (name, _) in ALIGNMENT_HEADS.items():
        sizes = ModelSizes(
            size, width, encoder_layers, width // 64, 4 * width, layers, width // 64, 4 * width
        )
        generation = generation_of(name, sizes, tokenizer_of(ENGLISH))
        mask = np.frombuffer(gzip.decompress(base64.b85decode(theirs[name])), bool)
        expected = np.argwhere(mask.reshape(layers, sizes.decoder_attention_heads))
        assert generation.alignment_heads(sizes) == tuple(map(tuple, expected))
        assert f"they are those of {name}, which has its shape." in caplog.text
    assert {name for name, _ in ALIGNMENT_HEADS.values()} == theirs.keys() - {"large", "large-v1", "turbo"}
