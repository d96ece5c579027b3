"""``python -m experiments.peers``: this project beside other programs, in turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from experiments.common.audio.samples import load_samples
from experiments.common.bench.program import Program, Rounds, program
from experiments.common.bench.report import installed
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.peers.arms import OURS, Arm, System, arms_of_pair, facts
from experiments.peers.formats import save_ctranslate2
from experiments.peers.others import FasterWhisper, Transformers
from experiments.peers.programs import Offered, Programs, served_pair, special_of
from experiments.peers.summary import (
    differences,
    find_bars,
    is_broken,
    print_table,
    word_error_rates,
)
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve

PACKAGES = ("ctranslate2", "faster-whisper", "onnxruntime", "tokenizers")
TARGET, DRAFT = "demo-target", "demo-draft-tiny"
DISTILLED = "demo-draft-distil"  # has the target's encoder: for transformers' assistant, and ours
DRAFTS = {
    System.ONE_PROCESS: DRAFT,
    System.ONE_PROCESS_DISTIL: DISTILLED,
    System.ONE_PROCESS_BATCHED: DRAFT,
}
QUICK_ROUNDS = 2


@program
def peers(given: Program, rounds: Rounds = 5) -> None:
    """Time per token of the demo pair, and of others on the target's weights.

    Programs run on the first core, as the target server does; draft server and client share the second.
    ``--quick`` leaves out timestamps, batches and int8.
    """
    cores, samples = first_two_cores(), load_samples(None)
    if given.quick:
        samples, rounds = [sample for sample in samples if sample.fits_one_window][:1], QUICK_ROUNDS
    checkpoint = load_checkpoint(TARGET)
    vocabulary = checkpoint.vocabulary
    with on_cores(cores[1:]):
        folder, converted = resolve(TARGET), given.folder / "ctranslate2"

        def build(arm: Arm) -> Callable[[], Any]:
            if arm.system in (System.TRANSFORMERS, System.ASSISTED):
                return partial(Transformers, TARGET, resolve(DISTILLED))
            if arm.system in OURS:
                return partial(Offered, TARGET, DRAFTS, arm.precision)
            if not converted.exists():
                save_ctranslate2(folder, converted)
            suppress, has_languages = sorted(vocabulary.suppress), bool(vocabulary.languages)
            return partial(FasterWhisper, converted, arm.precision, suppress, is_multilingual=has_languages)

        special = special_of(checkpoint)
        serve = partial(served_pair, TARGET, DRAFT, special=special, cores=cores)
        with Programs(samples, build, core=cores[0], serve=serve) as programs:
            arms = arms_of_pair(quick=given.quick)
            runs, missing = programs.measure(arms, rounds, given.seed, given.console)
    rates, different = word_error_rates(runs, samples, vocabulary), differences(runs)
    for timestamps in (True, False):
        if chosen := {arm: of_arm for arm, of_arm in runs.items() if arm.timestamps == timestamps}:
            title = f"{TARGET}, {'with' if timestamps else 'without'} timestamps"
            print_table(chosen, different, rates, title=title, console=given.console)
    bars, open_claims = find_bars(runs)
    wrong = [f"{arm}: {line}" for arm, line in different.items() if is_broken(arm)]
    notes = [f"{arm}: {line}" for of_arms in (missing, different) for arm, line in of_arms.items()]
    for line in (*open_claims, *notes):
        given.print(line, style="yellow")
    figures = {
        "cores": cores,
        "word_error_rates": {str(arm): rate for arm, rate in rates.items()},
        "peers": {package: installed(package) for package in PACKAGES},
        "samples": {sample.name: sample.duration_s for sample in samples},
        "notes": [*open_claims, *notes],
        "runs": [facts(arm, run) for arm, of_arm in runs.items() for run in of_arm],
    }
    models = {name: load_checkpoint(name).weights_digest for name in (TARGET, DRAFT, DISTILLED)}
    given.end(models, figures, bars, wrong)


if __name__ == "__main__":
    typer.run(peers)
