"""``python -m experiments.agents``: final text after the end of speech, in Pipecat and LiveKit."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import typer

from experiments.agents.clients import MODULES, interpreter_with, transcribe
from experiments.agents.takes import latencies, take_of, utterances
from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from scripts.demo import server

SILENCE_MS = 200
MAX_MEDIAN_S, MAX_P95_S = 0.6, 1.0
NUM_UTTERANCES, NUM_QUICK = 40, 5
VAD = {"turn_detection": {"type": "server_vad", "silence_duration_ms": SILENCE_MS}}
# LiveKit's plugin for Riva has no setting for the silence: it runs with the draft server's.
SETTINGS = {
    ("pipecat", "nvidia"): {"stop_history": SILENCE_MS},
    ("pipecat", "openai-realtime"): VAD,
    ("livekit", "nvidia"): {},
    ("livekit", "openai-realtime"): VAD,
}
BARRED = [pair for pair, settings in SETTINGS.items() if settings]


def benchmark(
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time final text after the end of speech with the bundled pair at 200 ms of silence."""
    console = open_console()
    for module in MODULES.values():
        if interpreter_with(module) is None:
            sys.exit(f"{module} is not installed: `scripts/nightly integrations` makes .integrations for it.")
    clean = [np.frombuffer(sample.pcm, "<i2") for sample in load_samples(None) if sample.fits_one_window]
    pieces = [piece for samples in clean for piece in utterances(samples)]
    order = np.random.default_rng(seed).permutation(len(pieces))
    take = take_of([pieces[index] for index in order[: NUM_QUICK if quick else NUM_UTTERANCES]])
    figures, bars = {}, []
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        take.write(folder / "take.wav")
        target = stack.enter_context(server("specwhisper_target_server", folder / "target.log"))
        draft = stack.enter_context(
            server("specwhisper_draft_server", folder / "draft.log", "--target", target)
        )
        gateway = stack.enter_context(
            server("specwhisper_gateway", folder / "gateway.log", "--server", draft)
        )
        for (framework, service), settings in SETTINGS.items():
            address = draft if service == "nvidia" else gateway
            timeout_s = 2 * len(take.samples) / 16_000 + 120
            texts = transcribe(
                framework, service, address, folder / "take.wav", settings=settings, timeout_s=timeout_s
            )
            found = latencies(take, texts)
            median, p95 = np.quantile(found, [0.5, 0.95])
            name = f"{framework} {service}"
            console.print(f"{name}: median {median:.2f} s, p95 {p95:.2f} s of {len(found)} utterances")
            figures[name] = {"latencies_s": found, "texts": [asdict(text) for text in texts]}
            if (framework, service) in BARRED:
                bars.append(Bar(f"{name}, median in s", float(median), MAX_MEDIAN_S, f"{median:.2f}"))
                bars.append(Bar(f"{name}, p95 in s", float(p95), MAX_P95_S, f"{p95:.2f}"))
    if json is not None:
        models = {"target": "demo-target", "draft": "demo-draft-tiny"}
        write_json(json, models=models, figures=figures)
    if not print_bars(bars, console) and check:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(benchmark)
