"""The pair of models that the programs run on, and what stands on the page in its place.

Another pair is tried with SPECWHISPER_DOORS_PAIR="DRAFT,TARGET" and SPECWHISPER_DOORS_RECORDING=FILE of one
channel, text models with SPECWHISPER_DOORS_TEXT_PAIR.
"""

import os
import runpy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import specwhisper
from specwhisper import SpeculativeWhisper, Transcription
from tests.e2e.conftest import start_server_for_all  # noqa: F401 (a fixture)
from tests.llamas import llama, llama_tokenizer

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"
RECORDING = Path(os.environ.get("SPECWHISPER_DOORS_RECORDING", SAMPLES / "01_phone_call.flac"))
DRAFT, TARGET = os.environ.get("SPECWHISPER_DOORS_PAIR", "demo-draft-tiny,demo-target").split(",")
HERE = {  # what the programs of the page name, and what there is
    '"tiny", "large-v3"': f'"{DRAFT}", "{TARGET}"',
    'device="cuda", dtype="float16"': 'device="cpu"',
}
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def text_pair(tmp_path_factory) -> tuple[str, str]:
    """Return folders of two small language models."""
    if named := os.environ.get("SPECWHISPER_DOORS_TEXT_PAIR"):
        draft, target = named.split(",")
        return draft, target
    folders = [tmp_path_factory.mktemp(name) for name in ("draft", "target")]
    for seed, folder in enumerate(folders):
        llama(2, seed, positions=200).save_pretrained(folder)
        llama_tokenizer().save_pretrained(folder)
    return str(folders[0]), str(folders[1])


@pytest.fixture(scope="session")
def server(start_server_for_all) -> str:  # noqa: F811
    """Return the address of a draft server of the pair."""
    target = start_server_for_all("specwhisper_target_server", "--model", TARGET)
    draft = start_server_for_all(
        "specwhisper_draft_server", "--draft-model", DRAFT, "--target", target.address
    )
    return draft.address


@pytest.fixture(scope="session")
def alone() -> Transcription:
    """Return what the target alone writes."""
    return alone_with()


def alone_with(**options) -> Transcription:
    """Return what the target alone writes, with options."""
    return SpeculativeWhisper(None, TARGET, device="cpu").transcribe(
        RECORDING, language="en", word_timestamps=True, **options
    )


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., list[str]]:
    """Return a function that runs a program and returns the lines that it prints."""
    for name in ("talk.mp3", "answer.mp3"):
        shutil.copy(RECORDING, tmp_path / name)  # decoders look at the content
    monkeypatch.chdir(tmp_path)

    def program(name: str, names: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        text = (PROGRAMS / f"{name}.py").read_text()
        for stated, actual in {**HERE, **names}.items():
            text = text.replace(stated, actual)
        (tmp_path / "program.py").write_text(text)
        capsys.readouterr()
        runpy.run_path("program.py", run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return program
