"""How soon after the end of speech voice agents of Pipecat and LiveKit have its final text."""

from __future__ import annotations

import importlib.util
import json as json_lines
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from experiments.common.audio.samples import load_samples
from experiments.common.bench.program import Program, program
from experiments.common.bench.report import Bar
from scripts.demo import server
from specwhisper.types import SAMPLE_RATE

PYTHON = "SPECWHISPER_INTEGRATIONS_PYTHON"  # the variable that names the interpreter
CLIENT = Path(__file__).with_name("agent_client.py")
MODULES = {"pipecat": "pipecat", "livekit": "livekit.agents"}
SILENCE_MS = 200
MAX_MEDIAN_S, MAX_P95_S = 0.6, 1.0
NUM_UTTERANCES, NUM_QUICK = 40, 5
VAD = {"turn_detection": {"type": "server_vad", "silence_duration_ms": SILENCE_MS}}
# LiveKit's plugin for Riva has no setting for the silence: it runs with the draft server's, without a bar.
SETTINGS = {
    ("pipecat", "nvidia"): {"stop_history": SILENCE_MS},
    ("pipecat", "openai-realtime"): VAD,
    ("livekit", "nvidia"): {},
    ("livekit", "openai-realtime"): VAD,
}
GAP_S = 3.0  # after each utterance; a text that comes later is counted as late by all of it
LEAD_S = 1.0
MIN_PAUSE_S = 0.35  # between two utterances of a recording
FRAME = SAMPLE_RATE // 100
LOUD = 0.02  # of the loudest frame
Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Text:
    """A text; ``s`` is in seconds since the audio began, ``kind`` one of interim, final and error."""

    s: float
    kind: str
    text: str


@program
def agents(given: Program) -> None:
    """Time final text after the end of speech in Pipecat and LiveKit, with the bundled pair.

    Utterances end after 200 ms of silence.
    """
    for module in MODULES.values():
        if interpreter_with(module) is None:
            sys.exit(f"{module} is not installed: `scripts/nightly integrations` makes .integrations for it.")
    clean = [np.frombuffer(sample.pcm, "<i2") for sample in load_samples(None) if sample.fits_one_window]
    pieces = [piece for samples in clean for piece in utterances(samples)]
    order = np.random.default_rng(given.seed).permutation(len(pieces))
    order = order[: given.choose(NUM_QUICK, NUM_UTTERANCES)]
    samples, ends_s = joined([pieces[index] for index in order])
    figures, bars = {}, []
    folder = given.folder
    with ExitStack() as stack:
        soundfile.write(folder / "take.wav", samples, SAMPLE_RATE, subtype="PCM_16")

        def start(module: str, *arguments: str) -> str:
            return stack.enter_context(server(module, folder / f"{module}.log", *arguments))

        draft = start("specwhisper_draft_server", "--target", start("specwhisper_target_server"))
        gateway = start("specwhisper_gateway", "--server", draft)
        for (framework, service), settings in SETTINGS.items():
            texts = transcribe(
                framework,
                service,
                draft if service == "nvidia" else gateway,
                folder / "take.wav",
                settings=settings,
                timeout_s=2 * len(samples) / SAMPLE_RATE + 120,
            )
            found = latencies(ends_s, texts)
            median, p95 = map(float, np.quantile(found, [0.5, 0.95]))
            name = f"{framework} {service}"
            given.print(f"{name}: median {median:.2f} s, p95 {p95:.2f} s of {len(found)} utterances")
            figures[name] = {"latencies_s": found, "texts": [asdict(text) for text in texts]}
            if settings:
                bars.append(Bar(f"{name}, median in s", median, MAX_MEDIAN_S, f"{median:.2f}"))
                bars.append(Bar(f"{name}, p95 in s", p95, MAX_P95_S, f"{p95:.2f}"))
    given.end({"target": "demo-target", "draft": "demo-draft-tiny"}, figures, bars)


def interpreter_with(module: str) -> str | None:
    """Return the interpreter for a package, whose versions may not fit ours; ``None`` if none has it."""
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
    """Run a client to its end; return what it printed, or raise :class:`RuntimeError` with its log.

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
    # Its own interpreter has its own packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    arguments = framework, service, address, str(recording), json_lines.dumps(settings or {})
    done = subprocess.run(
        [python, str(CLIENT), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{framework} failed:\n{done.stderr[-2000:]}")
    return [Text(**json_lines.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def utterances(samples: Samples) -> list[Samples]:
    """Cut a clean recording at its pauses."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    loudness = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(loudness > LOUD * loudness.max())
    cuts = np.flatnonzero(np.diff(loud) > MIN_PAUSE_S * 100)
    starts = [loud[0], *loud[cuts + 1]]
    ends = [*loud[cuts], loud[-1]]
    return [samples[start * FRAME : (end + 1) * FRAME] for start, end in zip(starts, ends, strict=True)]


def joined(chosen: Sequence[Samples]) -> tuple[Samples, list[float]]:
    """Join utterances with silence, so that each final text has one end of speech; return these ends in s."""
    pieces, ends_s = [np.zeros(round(LEAD_S * SAMPLE_RATE), np.int16)], []
    gap = np.zeros(round(GAP_S * SAMPLE_RATE), np.int16)
    for utterance in chosen:
        ends_s.append(sum(map(len, [*pieces, utterance])) / SAMPLE_RATE)
        pieces += [utterance, gap]
    return np.concatenate(pieces), ends_s


def latencies(ends_s: Sequence[float], texts: Sequence[Text]) -> list[float]:
    """Return the seconds from the end of each utterance's speech to its last final text.

    An utterance that gets no final text after its end counts as ``GAP_S``: it was lost, late or cut off.
    """
    finals = [text.s for text in texts if text.kind == "final"]
    return [
        max((at_s - end_s for at_s in finals if end_s < at_s < end_s + GAP_S), default=GAP_S)
        for end_s in ends_s
    ]
