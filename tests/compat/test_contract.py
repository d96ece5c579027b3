"""The wire contract keeps all of the previous release, or the check fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.release import ROOT, unpack

BUF = Path(sys.executable).with_name("buf")


def broken(proto: Path, against: Path) -> str:
    """Return what ``scripts/check`` reports as broken; empty if nothing is."""
    checked = subprocess.run([BUF, "breaking", proto, "--against", against], capture_output=True, text=True)
    assert (checked.returncode == 0) == (not checked.stdout), checked.stderr
    return checked.stdout


@pytest.fixture
def previous(tmp_path) -> Path:
    return unpack(tmp_path / "previous", "proto") / "proto"


def test_the_working_tree_breaks_nothing(previous):
    assert broken(ROOT / "proto", previous) == ""


@pytest.mark.parametrize(
    ("file", "line", "changed", "finding"),
    [
        ("transcription", "uint32 gamma = 7;", "uint32 gamma = 17;", 'field "7" with name "gamma"'),
        ("transcription", "uint32 gamma = 7;", "uint64 gamma = 7;", "changed type"),
        ("transcription", "uint32 gamma = 7;", "uint32 length = 7;", "changed name"),
        ("transcription", "bool is_lossy = 6;", "", 'field "6" with name "is_lossy"'),
        ("transcription", "SPEECH_EVENT_END = 2", "SPEECH_EVENT_STOP = 2", "SPEECH_EVENT_END"),
        (
            "transcription",
            "rpc GetModel(GetModelRequest) returns (GetModelResponse);",
            "",
            'RPC "GetModel"',
        ),
    ],
)
def test_a_change_that_older_peers_would_misread_is_found(file, line, changed, finding, previous, tmp_path):
    proto = tmp_path / "proto"
    shutil.copytree(previous, proto)
    path = proto / "specwhisper" / "wire" / "v1" / f"{file}.proto"
    text = path.read_text()
    assert line in text
    path.write_text(text.replace(line, changed))
    assert finding in broken(proto, previous)
