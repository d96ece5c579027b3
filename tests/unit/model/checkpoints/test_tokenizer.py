"""Tokenizers are read as transformers reads them, from files of every age."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperTokenizer

from experiments.common.models.checkpoints import Shape, Words, build_tokenizer
from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.names import DEMO_MODELS, resolve
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer
from tests.nightly import examples, mostly_nightly
from tests.unit.model.checkpoints.folders import change_json

TEXTS = (
    " Hello there, it's 3.14 o'clock!",
    " naïve café — 東京は晴れ",
    " Привет, мир   42",
    "\n  x 👩‍🚀 ñ",
    " <|endoftext|> <|de|>x<|0.00|>  <|nospeech|><|unknown|>",
    "",
)


def tokenizer_in(folder: str | Path) -> Tokenizer:
    tokenizer = read_tokenizer(ModelFiles(str(folder)))
    assert tokenizer is not None
    return tokenizer


def assert_equal(ours: Tokenizer, theirs: WhisperTokenizer) -> None:
    assert ours.tokens() == theirs.convert_ids_to_tokens(list(range(len(theirs))))
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("name", DEMO_MODELS)
def test_tokenizers_of_bundled_models_equal_transformers(name: str):
    assert_equal(tokenizer_in(name), WhisperTokenizer.from_pretrained(resolve(name)))


@pytest.fixture(scope="module", params=["few", "multilingual"])
def saved(request, tmp_path_factory) -> Path:
    """Return a folder with the files of a tokenizer in every form."""
    words: Words = request.param
    folder = tmp_path_factory.mktemp(words)
    tokenizer = build_tokenizer(Shape(words=words))
    tokenizer.save_pretrained(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()  # a folder without weights is no model
    return folder


def whole_only(folder: Path) -> None:
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (folder / name).unlink()


def with_merges_as_strings(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def with_tokens_in_config(folder: Path) -> None:
    """Name the added tokens in tokenizer_config.json too, as releases before the fifth did."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    decoder = {str(token.pop("id")): token for token in added}
    change_json(folder / "tokenizer_config.json", added_tokens_decoder=decoder)


def slow_with_config(folder: Path) -> None:
    with_tokens_in_config(folder)
    (folder / "tokenizer.json").unlink()


def slow(folder: Path) -> None:
    """Leave the files of the first Whisper checkpoints."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    change_json(folder / "added_tokens.json", **{token["content"]: token["id"] for token in added})
    special = [token["content"] for token in added if token["special"]]
    named = {
        "content": special[0],
        "lstrip": False,
        "normalized": True,
        "rstrip": False,
        "single_word": False,
    }
    change_json(
        folder / "special_tokens_map.json",
        bos_token=named,
        eos_token=named,
        unk_token={**named, "content": ""},
        additional_special_tokens=special,
    )
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def slow_without_added_tokens(folder: Path) -> None:
    """Leave the text tokens; end-of-text is added as the token that settings name by default."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def with_other_settings(folder: Path) -> None:
    change_json(
        folder / "tokenizer_config.json",
        pad_token="<pad>",
        extra_special_tokens=["<more>", "<|de|>"],
        add_prefix_space=True,
    )


@pytest.mark.parametrize(
    "change",
    mostly_nightly(
        [
            whole_only,
            with_merges_as_strings,
            slow_without_added_tokens,
            with_other_settings,
            with_tokens_in_config,
            slow_with_config,
            slow,
        ],
        by_day=2,
    ),
)
def test_files_of_every_age_equal_transformers(change: Callable[[Path], None], saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(saved, tmp_path / "changed"))
    change(folder)
    assert_equal(tokenizer_in(folder), WhisperTokenizer.from_pretrained(folder))


def test_a_hole_among_the_ids_is_filled(saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(saved, tmp_path / "changed"))
    content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    removed = next(token for token in content["model"]["vocab"] if token.startswith("Ġ") and len(token) > 3)
    hole = content["model"]["vocab"].pop(removed)
    content["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert tokenizer_in(folder).tokens()[hole] == f"<|unused{hole}|>"


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_a_model_without_its_files_has_no_tokenizer(missing: str, saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(saved, tmp_path / "changed"))
    (folder / "tokenizer.json").unlink()
    (folder / missing).unlink()
    assert read_tokenizer(ModelFiles(str(folder))) is None


DEMO = tokenizer_in("demo-target")
DEMO_OF_TRANSFORMERS = WhisperTokenizer.from_pretrained(resolve("demo-target"))


@settings(deadline=None, max_examples=examples(60, 300))
@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(" '<|>ab.")), max_size=60))
def test_any_text_has_the_tokens_of_transformers(text: str):
    assert DEMO.encode(text) == DEMO_OF_TRANSFORMERS(text, add_special_tokens=False).input_ids
