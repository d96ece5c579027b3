"""Runs the clients in an interpreter of their own, since their packages' versions may not fit ours."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON = "SPECWHISPER_INTEGRATIONS_PYTHON"  # the variable that names the interpreter
FOLDER = Path(__file__).parent
MODULES = {"pipecat": "pipecat", "livekit": "livekit.agents"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text; ``s`` is in seconds since the audio began, ``kind`` one of interim, final and error."""

    s: float
    kind: str
    text: str


def interpreter_with(module: str) -> str | None:
    """Return the interpreter to use for a package, or ``None`` if there is none."""
    if named := os.environ.get(PYTHON):
        return named
    top = module.partition(".")[0]
    return sys.executable if importlib.util.find_spec(top) is not None else None


def transcribe(
    framework: str,
    service: str,
    address: str,
    recording: Path,
    *,
    settings: dict[str, Any] | None = None,
    timeout_s: float = 240.0,
) -> list[Text]:
    """Run a client to its end; return what it printed.

    Raises :class:`RuntimeError` with its log if it fails.

    Parameters
    ----------
    framework : ``pipecat`` or ``livekit``.
    service : ``nvidia`` (address of a draft server), ``openai`` or ``openai-realtime`` (of a gateway).
    recording : a WAV file of 16-bit samples in one channel.
    settings : parameters of the service, besides address and key.
    """
    python = interpreter_with(MODULES[framework])
    if python is None:
        raise RuntimeError(f"{MODULES[framework]} is not installed: name an interpreter in ${PYTHON}.")
    script = FOLDER / f"{framework}_client.py"
    # Its own interpreter has its own packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, str(script), service, address, str(recording), json.dumps(settings or {})],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} failed:\n{done.stderr[-2000:]}")
    return [Text(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
