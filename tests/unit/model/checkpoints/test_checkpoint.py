"""Checkpoints load by name, hub id or folder; errors are one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import WhisperForConditionalGeneration

from experiments.common.models.checkpoints import build_checkpoint
from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER, public_name, resolve
from specwhisper.options import DecodingOptions
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import MaxLength
from tests.unit.model.checkpoints.folders import SHAPE, WEIGHTS, change_json


def assert_same_weights(ours: Checkpoint, theirs: Checkpoint) -> None:
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(np.array_equal(ours.weights[name], theirs.weights[name]) for name in theirs.weights)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("small.en", "openai/whisper-small.en"),
            ("turbo", "openai/whisper-large-v3-turbo"),
            ("large", "openai/whisper-large-v3"),
            ("large-v1", "openai/whisper-large"),
            ("distil-large-v3", "distil-whisper/distil-large-v3"),
            ("someone/whisper-fine-tuned.v2", "someone/whisper-fine-tuned.v2"),
            ("demo-draft-tiny", str(DEMO_FOLDER / "draft-tiny")),
        ],
    )
    def test_bare_names_and_hub_ids_resolve(self, name, source):
        assert resolve(name) == source

    def test_a_folder_may_have_the_name_of_a_model(self, tmp_path, monkeypatch):
        (tmp_path / "tiny").mkdir()
        monkeypatch.chdir(tmp_path)
        assert resolve("tiny") == "tiny"
        assert resolve(str(tmp_path)) == str(tmp_path)

    @pytest.mark.parametrize(
        ("names", "problem"),
        [
            (["whisper-huge"], r"no model '{}': name a folder, a file \(.*\.pt\)"),
            (["/nowhere/model", "./no", "../no", "a/b/c", "a//b"], "'{}' does not exist: check the path, or"),
            (["/x/no.bin", "x/no.pt", "distil-no.bin"], "'{}' does not exist: check the path, or name a "),
        ],
    )
    def test_an_unknown_name_is_refused_with_the_known_ones(self, names, problem):
        for name in names:
            with pytest.raises(CheckpointError, match=problem.format(name)):
                resolve(name)


class TestContent:
    def test_a_folder_loads_as_it_was_in_memory(self, saved):
        _, expected = build_checkpoint(SHAPE)
        loaded = load_checkpoint(str(saved))
        assert loaded.vocabulary == expected.vocabulary
        assert loaded.vocabulary.digest == expected.vocabulary.digest
        assert_same_weights(loaded, expected)
        assert (loaded.num_mel_bins, loaded.dtype, loaded.max_new_tokens) == (80, "float32", MaxLength(448))
        assert loaded.name == saved.name

    def test_the_digest_depends_on_weights_and_precision(self, saved, folder):
        digest = load_checkpoint(str(saved)).weights_digest
        assert len(digest) == 64
        assert load_checkpoint(str(folder)).weights_digest == digest
        assert load_checkpoint(str(folder), dtype="bfloat16").weights_digest != digest
        weights = load_file(folder / WEIGHTS)
        weights["model.decoder.layer_norm.bias"] += 1
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        assert load_checkpoint(str(folder)).weights_digest != digest

    def test_sharded_weights_are_loaded(self, saved, tmp_path):
        model = WhisperForConditionalGeneration.from_pretrained(saved)
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(WEIGHTS))
        model.save_pretrained(tmp_path, max_shard_size="100KB")
        assert len(list(tmp_path.glob("*.safetensors"))) > 1
        loaded, whole = load_checkpoint(str(tmp_path)), load_checkpoint(str(saved))
        assert_same_weights(loaded, whole)
        assert loaded.weights_digest != whole.weights_digest

    def test_the_digest_is_of_the_loaded_files(self, saved, folder):
        """transformers does not read an index if there is a single file of weights."""
        digest = load_checkpoint(str(saved)).weights_digest
        stray = folder / "stray.safetensors"
        save_file({"model.decoder.layer_norm.bias": torch.zeros(3)}, stray, metadata={"format": "pt"})
        index = {"weight_map": {"model.decoder.layer_norm.bias": stray.name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert load_checkpoint(str(folder)).weights_digest == digest

    def test_a_model_without_generation_config_has_no_timestamps(self, folder, caplog):
        (folder / "generation_config.json").unlink()
        loaded = load_checkpoint(str(folder))
        assert loaded.vocabulary.no_timestamps is None
        assert loaded.max_new_tokens == MaxLength(20)
        assert not any(loaded.vocabulary.is_timestamp(i) for i in range(len(loaded.vocabulary)))
        assert "has no generation_config.json: it gets neither languages nor timestamps" in caplog.text
        assert "first window gets at most 20 tokens" in caplog.text
        for options in (DecodingOptions.greedy(), DecodingOptions.greedy(language="de", timestamps=False)):
            with pytest.raises(UnsupportedOption, match=r"or copy the generation_config\.json of the model"):
                loaded.vocabulary.check(options)


class TestGenerationConfig:
    """Generation configs of fine-tunes are read as transformers reads them."""

    @pytest.fixture
    def changed(self, folder) -> Callable[..., Checkpoint]:
        def load(**changes) -> Checkpoint:
            change_json(folder / "generation_config.json", **changes)
            return load_checkpoint(str(folder))

        return load

    @pytest.mark.parametrize("language", ["<|de|>", "German"])
    def test_a_fine_tune_speaks_its_own_language_unless_the_caller_sets_one(self, changed, language):
        vocabulary = changed(language=language).vocabulary
        assert vocabulary.default_language == "de"
        for options, code in (
            (DecodingOptions.greedy(), "de"),
            (DecodingOptions.greedy(language="en"), "en"),
        ):
            assert vocabulary.languages[code] in vocabulary.prompt(options)
            assert SequentialWindows(vocabulary, options).language == code

    def test_the_old_form_of_a_config_is_read(self, changed):
        languages = changed().vocabulary.languages
        forced = [[1, languages["de"]], [2, 7]]
        assert changed(forced_decoder_ids=forced).vocabulary.default_language == "de"
        assert changed(forced_decoder_ids=forced, task="transcribe").vocabulary.default_language is None
        assert changed(forced_decoder_ids=forced, language="en", task=...).vocabulary.default_language == "en"
        published = changed(forced_decoder_ids=[[1, None], [2, 7]], language=...)
        assert published.vocabulary.default_language is None

    def test_an_outdated_config_is_refused(self, changed):
        with pytest.raises(CheckpointError, match=r"outdated generation_config\.json without lang_to_id"):
            changed(forced_decoder_ids=[[1, 5], [2, 7]], lang_to_id=...)

    def test_heads_of_another_model_give_no_word_times(self, changed):
        assert changed(alignment_heads=[[0, 0], [25, 3]]).alignment_heads == ()

    def test_ignored_values_are_logged(self, changed, caplog):
        changed(task="transcribe", repetition_penalty=1.0)
        assert not caplog.messages
        task = changed().vocabulary.tasks["translate"]
        changed(forced_decoder_ids=[[1, None], [2, task]], task=...)
        assert "sets task=translate" in caplog.text
        changed(num_beams=5)
        assert "sets num_beams=5, which is ignored" in caplog.text


def without(name: str) -> Callable[[Path], None]:
    """Return what removes a weight."""

    def remove(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        del weights[name]
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return remove


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (
        lambda folder: (folder / "config.json").unlink(),
        "holds no model: it has no config.json; name another",
    ),
    "broken config": (
        lambda folder: (folder / "config.json").write_text("{"),
        r"cannot be loaded from .*config.json.*: fetch or save it again",
    ),
    "another type": (
        lambda folder: change_json(folder / "config.json", model_type="bert"),
        "is of type 'bert': choose a Whisper checkpoint",
    ),
    "another size": (
        lambda folder: change_json(folder / "config.json", d_model=32),
        r"is incomplete: \d+ weights do not fit its sizes, 'model",
    ),
    "no weights": (
        lambda folder: (folder / WEIGHTS).unlink(),
        "has no weights: fetch or save it again as safetensors",
    ),
    "pickled": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
        "has pickled weights, which can carry code: save it again as safetensors",
    ),
    "a weight is missing": (
        without("model.decoder.layer_norm.weight"),
        "is incomplete: weight 'model.decoder.layer_norm.weight' is missing; fetch or save it again",
    ),
    "no projection": (
        lambda folder: change_json(folder / "config.json", tie_word_embeddings=False),
        "is incomplete: weight 'proj_out.weight' is missing",
    ),
    "no tokenizer": (
        lambda folder: [file.unlink() for file in folder.glob("*token*")],
        "has no tokenizer: fetch or save it again together with it",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_an_error_in_a_folder_is_one_sentence(name: str, folder: Path):
    spoil, message = SPOILT[name]
    spoil(folder)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_checkpoint(str(folder))
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/whisper-base/", "whisper-base"),
        ("models/ggml-base.bin", "ggml-base.bin"),
        ("models/whisper-base/../other", "other"),
        ("hub/models--openai--whisper-tiny.en/snapshots/0123abcd", "openai/whisper-tiny.en"),
        (".", "models of mine"),
    ],
)
@pytest.mark.parametrize("is_absolute", [True, False])
def test_clients_see_the_last_part_of_a_path(
    path: str, expected: str, is_absolute: bool, tmp_path: Path, monkeypatch
) -> None:
    home = tmp_path / "models of mine"
    (home / "models" / "whisper-base").mkdir(parents=True)
    (home / path).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(home)
    assert public_name(str(home / path) if is_absolute else path) == expected
    for name in ("demo-target", "large-v3", "turbo", "openai/whisper-base"):
        assert public_name(name) == name
