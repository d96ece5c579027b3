"""Clients see the name of a model, and no path of the server's machine."""

from pathlib import Path

import pytest

from specwhisper.model.checkpoints.names import DEMO_FOLDER, public_name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/whisper-base", "whisper-base"),
        ("models/whisper-base/", "whisper-base"),
        ("models/whisper-base/../other", "other"),
        ("hub/models--openai--whisper-tiny.en/snapshots/0123abcd", "openai/whisper-tiny.en"),
        ("snapshots/0123abcd", "0123abcd"),
        (".", "models of mine"),
    ],
)
@pytest.mark.parametrize("is_absolute", [True, False])
def test_of_a_path_the_last_part_is_shown(
    path: str, expected: str, is_absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "models of mine"
    (home / "models" / "whisper-base").mkdir(parents=True)
    (home / path).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(home)
    assert public_name(str(home / path) if is_absolute else path) == expected


def test_of_a_file_its_name_is_shown(tmp_path: Path) -> None:
    (tmp_path / "ggml-base.bin").touch()
    assert public_name(str(tmp_path / "ggml-base.bin")) == "ggml-base.bin"


@pytest.mark.parametrize("name", ["demo-target", "large-v3", "turbo", "openai/whisper-base"])
def test_other_names_stay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert public_name(name) == name
    assert public_name(str(DEMO_FOLDER / "target")) == "target"
