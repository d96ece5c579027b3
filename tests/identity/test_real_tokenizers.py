"""With Whisper's own text tokens: the same ids as published checkpoints, and pairs of every kind are exact.

The weights are random and the models narrow; vocabulary, mel bins, special tokens and generation config are
those of the checkpoints they are named after.
"""

import base64

import pytest
import tiktoken

from experiments.common.models.checkpoints import Shape, asset, build_checkpoint, build_tokenizer
from experiments.exactness.cases import WHISPERS
from experiments.exactness.matrix import Row, run_row
from experiments.exactness.prepared import prepared

# Ids as in the generation configs on the hub.
PUBLISHED = {
    "large-v3": (Shape(words="multilingual", cantonese=True), 51_866, 50_257, 50_362, 50_364),
    "tiny": (Shape(words="multilingual"), 51_865, 50_257, 50_361, 50_363),
    "tiny.en": (Shape(words="gpt2", english_only=True), 51_864, 50_256, 50_360, 50_362),
}
SENTENCES = (
    " Hello there, it's 3.14 o'clock!",
    " naïve café — 東京は晴れ",
    " Привет, мир   42",
    "\n  x 👩‍🚀 ñ",
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_are_the_published_ones(name):
    shape, *expected = PUBLISHED[name]
    tokenizer = build_tokenizer(shape)
    names = ("<|endoftext|>", "<|startofprev|>", "<|notimestamps|>")
    assert [len(tokenizer), *map(tokenizer.convert_tokens_to_ids, names)] == expected


@pytest.mark.parametrize("words", ["multilingual", "gpt2"])
def test_text_becomes_the_tokens_of_openais_package(words):
    lines = (line.split() for line in asset(words).read_text().splitlines())
    theirs = tiktoken.Encoding(
        words,
        pat_str=r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens={},
    )
    tokenizer = build_tokenizer(Shape(words=words, english_only=words == "gpt2"))
    _, checkpoint = build_checkpoint(Shape(words=words, english_only=words == "gpt2", d_model=8))
    for sentence in SENTENCES:
        ids = theirs.encode(sentence)
        assert tokenizer(sentence, add_special_tokens=False).input_ids == ids
        assert checkpoint.vocabulary.decode(ids) == sentence


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name) for case in WHISPERS],
)
def test_pairs_are_exact(case):
    result = run_row(Row(case.name, lambda: prepared(case)))
    assert result.split_differences == result.oracle_differences == []
    assert result.windows >= 2
    assert result.acceptance_rate > 0.05
