"""Files are found in folders and in the hub's cache, and nothing heavy is imported for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import get_hf_file_metadata
from transformers.utils.hub import cached_file

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.files import CONFIG, WEIGHTS, WEIGHTS_INDEX, ModelFiles
from specwhisper.transcription.windows import MaxLength
from tests.unit.model.checkpoints.folders import COMMIT, in_hubs_cache

OLDER = "b" * 40


@pytest.fixture
def cache(saved: Path, tmp_path: Path, monkeypatch) -> Path:
    """Return the hub's cache with a model of two commits; the older one has no generation config."""
    model = in_hubs_cache(saved, tmp_path, "someone/whisper")
    shutil.copytree(saved, model / "snapshots" / OLDER)
    (model / "snapshots" / OLDER / "generation_config.json").unlink()
    (model / "refs" / "v1").write_text(OLDER)
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", True if "OFFLINE" in name else str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("revision", [None, "main", "v1", COMMIT, OLDER])
@pytest.mark.parametrize("file", [CONFIG, "generation_config.json", WEIGHTS, WEIGHTS_INDEX])
def test_files_of_the_cache_are_those_that_transformers_finds(file: str, revision: str | None, cache: Path):
    files = ModelFiles("someone/whisper", revision)
    assert files.find(CONFIG) is not None
    expected = cached_file(
        "someone/whisper",
        file,
        revision=revision,
        cache_dir=cache,
        _raise_exceptions_for_missing_entries=False,
    )
    assert files.find(file) == (None if expected is None else Path(expected))


def test_all_files_are_of_one_commit_even_if_the_branch_moves(cache: Path):
    files = ModelFiles("someone/whisper")
    files.find(CONFIG)
    (cache / "models--someone--whisper" / "refs" / "main").write_text(OLDER)
    found = files.find(WEIGHTS)
    assert found is not None and found.parent.name == COMMIT


def test_a_cached_model_loads_offline(cache: Path, saved: Path):
    loaded, expected = load_checkpoint("someone/whisper"), load_checkpoint(str(saved))
    assert loaded.weights_digest == expected.weights_digest
    assert loaded.vocabulary == expected.vocabulary
    assert load_checkpoint("someone/whisper", revision="v1").max_new_tokens == MaxLength(20)


@pytest.mark.parametrize("name", ["someone/else", "someone/whisper"])
def test_what_is_not_in_the_cache_cannot_be_loaded_offline(name: str, cache: Path):
    shutil.rmtree(cache / "models--someone--whisper" / "snapshots" / COMMIT)
    with pytest.raises(
        CheckpointError,
        match=rf"Model '{name}' cannot be loaded from {name} \(the hub cannot be reached, and the model is "
        r"not in the cache\): check name and connection, or name a folder\.",
    ):
        load_checkpoint(name)


def test_weights_that_are_not_in_the_cache_are_not_said_to_be_missing(cache: Path):
    (cache / "models--someone--whisper" / "snapshots" / COMMIT / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match="are not in the cache, and the hub cannot be reached"):
        load_checkpoint("someone/whisper")


def test_a_hub_that_does_not_answer_is_asked_once(cache: Path, monkeypatch):
    asked = []

    def ask(url: str, **_: object) -> None:
        asked.append(url)
        get_hf_file_metadata(url.replace("https://huggingface.co", "http://127.0.0.1:9"))

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", ask)
    files = ModelFiles("someone/whisper", COMMIT)
    assert files.find(CONFIG) is not None and not asked  # a commit never changes
    assert [files.find(name) for name in (WEIGHTS_INDEX, "merges.txt")] == [None, None]
    assert len(asked) == 1


@pytest.mark.parametrize("names", [["missing.safetensors"], ["../model.safetensors"]])
def test_an_index_names_files_of_its_own_folder(names: list[str], saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    shutil.copy(folder / WEIGHTS, tmp_path / WEIGHTS)
    (folder / WEIGHTS).rename(folder / "other.safetensors")
    weight_map = ", ".join(f'"{i}": "{name}"' for i, name in enumerate(names))
    (folder / WEIGHTS_INDEX).write_text(f'{{"weight_map": {{{weight_map}}}}}')
    with pytest.raises(CheckpointError, match=r"\(there is no file .*, which its index names\)"):
        load_checkpoint(str(folder))


def test_loading_imports_neither_torch_nor_transformers():
    program = (
        "import sys\n"
        "from specwhisper.model.checkpoints.checkpoint import load_checkpoint\n"
        "checkpoint = load_checkpoint('demo-target')\n"
        "assert checkpoint.tokenizer.encode(' the') and len(checkpoint.weights['proj_out.weight'])\n"
        "heavy = {'torch', 'transformers', 'safetensors', 'huggingface_hub', 'ml_dtypes'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "[]\n"
