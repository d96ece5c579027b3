"""Pipecat and LiveKit transcribe with their defaults, but for the address."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_gateway import SPOKEN_TEXT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
PYTHON = "SPECWHISPER_INTEGRATIONS_PYTHON"  # the variable that names an interpreter with other packages
CLIENT = Path(__file__).with_name("agent_client.py")


@pytest.mark.parametrize("service", ["nvidia", "openai", "openai-realtime"])
@pytest.mark.parametrize("framework", ["livekit", "pipecat"])
def test_an_unmodified_service_transcribes(framework, service, demo_server, demo_gateway, recording):
    python = interpreter_with(framework)
    address = demo_server if service == "nvidia" else demo_gateway.address
    texts = transcribe(python, framework, service, address, recording)
    kinds = {text["kind"] for text in texts}
    assert "error" not in kinds
    assert " ".join(text["text"].strip() for text in texts if text["kind"] == "final") == SPOKEN_TEXT
    if service == "nvidia":
        assert "interim" in kinds


def transcribe(python: str, *arguments: str | Path) -> list[dict[str, str]]:
    """Run a client of a framework to its end; return what it printed."""
    # Its own interpreter has its own packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, CLIENT, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def interpreter_with(framework: str) -> str:
    """Return the interpreter for a package, whose versions may not fit ours."""
    if named := os.environ.get(PYTHON):
        return named
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed; scripts/nightly integrations sets {PYTHON}")
    return sys.executable


def test_the_example_shows_captions(demo_server, recording):
    python = interpreter_with("pipecat")
    program = Path(__file__).parents[2] / "examples" / "pipecat_captions.py"
    shown = subprocess.run(
        [python, program, recording, "--server", demo_server],
        capture_output=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    ).stdout.decode()
    captions = [line.rpartition("\r\033[K")[2] for line in shown.split("\n")]
    assert " ".join(filter(None, captions)) == SPOKEN_TEXT
    assert "\033[2mHello" in shown, "text that may change is dim"
