"""Pipecat and LiveKit transcribe with their defaults, but for the address."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from experiments.streaming.agents import MODULES, PYTHON, interpreter_with, transcribe
from tests.e2e.test_gateway import SPOKEN_TEXT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.parametrize("service", ["nvidia", "openai", "openai-realtime"])
@pytest.mark.parametrize("framework", sorted(MODULES))
def test_an_unmodified_service_transcribes(framework, service, servers, recording):
    if interpreter_with(MODULES[framework]) is None:
        pytest.skip(f"{MODULES[framework]} is not installed; scripts/nightly integrations sets {PYTHON}")
    address = servers.draft if service == "nvidia" else servers.gateway
    texts = transcribe(framework, service, address, recording)
    assert not [text for text in texts if text.kind == "error"]
    final = " ".join(text.text.strip() for text in texts if text.kind == "final")
    assert final == SPOKEN_TEXT
    if service == "nvidia":
        assert any(text.kind == "interim" for text in texts)


def test_the_example_shows_captions(servers, recording):
    if (python := interpreter_with(MODULES["pipecat"])) is None:
        pytest.skip(f"Pipecat is not installed; scripts/nightly integrations sets {PYTHON}")
    program = Path(__file__).parents[2] / "examples" / "pipecat_captions.py"
    shown = subprocess.run(
        [python, program, recording, "--server", servers.draft],
        capture_output=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    ).stdout.decode()
    captions = [line.rpartition("\r\033[K")[2] for line in shown.split("\n")]
    assert " ".join(filter(None, captions)) == SPOKEN_TEXT
    assert "\033[2mHello" in shown, "text that may change is dim"
