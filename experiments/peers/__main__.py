"""``python -m experiments.peers``: this project beside other programs, in turns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.options import Audio, Check, Draft, Gamma, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.record import recorded
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.peers.arms import INT8, OURS, Arm, Piece, Run, System, arms_of_pair, arms_of_shape
from experiments.peers.formats import save_ctranslate2, save_ggml, save_openai
from experiments.peers.others import FasterWhisper, OpenaiWhisper, Transformers, WhisperCpp
from experiments.peers.ours import as_replay, on_pair, pieces_of, special_of
from experiments.peers.programs import Programs
from experiments.peers.served import served_pair
from experiments.peers.summary import (
    Runs,
    differences,
    find_bars,
    is_broken,
    print_table,
    word_error_rates,
)
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.options import DecodingOptions

PACKAGES = ("ctranslate2", "faster-whisper", "onnxruntime", "openai-whisper", "pywhispercpp", "tokenizers")
DRAFT_SHAPE = "tiny"
QUICK_ROUNDS, QUICK_SHAPE = 2, "base"
Rounds = Annotated[int, typer.Option(min=1, help="How often every arm transcribes everything.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def pair(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    distilled: Annotated[
        str, typer.Option(help="Draft with the target's encoder: transformers' assistant, and ours.")
    ] = "demo-draft-distil",
    gamma: Gamma = None,
    audio: Audio = None,
    rounds: Rounds = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time per token of the demo pair, or of another one, and of others on the target's weights.

    Programs run on the first core, as the target server does; draft server and client share the second.
    ``--quick`` leaves out timestamps, batches and int8.
    """
    console, cores = open_console(), first_two_cores()
    samples = load_samples(audio)
    if quick:
        samples, rounds = [sample for sample in samples if sample.fits_one_window][:1], QUICK_ROUNDS
    checkpoint = load_checkpoint(target)
    vocabulary = checkpoint.vocabulary
    with TemporaryDirectory() as work, on_cores(cores[1:]):
        folder, converted = resolve(target), Path(work) / "ctranslate2"

        def build(arm: Arm) -> Callable[[], Any]:
            if arm.system in (System.TRANSFORMERS, System.ASSISTED):
                return partial(Transformers, folder, resolve(distilled))
            if arm.system in OURS:
                return partial(on_pair, target, draft, distilled, arm.precision, gamma)
            if not converted.exists():
                save_ctranslate2(folder, converted)
            suppress, has_languages = sorted(vocabulary.suppress), bool(vocabulary.languages)
            return partial(FasterWhisper, converted, arm.precision, suppress, is_multilingual=has_languages)

        special = special_of(checkpoint)
        serve = partial(served_pair, target, draft, special=special, cores=cores, gamma=gamma)
        with Programs(samples, build, core=cores[0], serve=serve) as programs:
            runs, missing = programs.measure(arms_of_pair(quick=quick), rounds, seed, console)
    rates = word_error_rates(runs, samples, vocabulary)
    digests = {name: load_checkpoint(name).weights_digest for name in (target, draft, distilled)}
    figures = {
        "cores": cores,
        "gamma": gamma,
        "word_error_rates": {str(arm): rate for arm, rate in rates.items()},
    }
    _report(target, samples, runs, missing, rates, (), seed, check, json, digests, figures, console)


@app.command()
def shape(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PUBLISHED)}.")] = "small",
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    gamma: Gamma = None,
    audio: Audio = None,
    recordings: Annotated[int, typer.Option(min=1, help="How many, shortest first.")] = 2,
    rounds: Rounds = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time per token at the cost of a published shape, with the same random weights for all.

    Ours replays the demo pair (true cost, true acceptance). The others write as many tokens for each window
    as the demo target did, without the rules of timestamps. ``--quick`` takes base, in float32.
    """
    if quick:
        name, rounds, recordings = QUICK_SHAPE, QUICK_ROUNDS, 1
    if name not in PUBLISHED:
        raise InvalidRequest(f"There is no shape '{name}': choose one of {', '.join(PUBLISHED)}.")
    console, cores = open_console(), first_two_cores()
    samples = load_samples(audio)[:recordings]
    with TemporaryDirectory() as folder, on_cores(cores[1:]):
        work = Path(folder)
        trace, options = work / "trace.json", [DecodingOptions.greedy(language="en")]
        written = recorded(trace, samples, target=target, draft=draft, options=options)
        large = str(save_checkpoint(replace(PUBLISHED[name], seed=seed), work / "target"))
        small = str(save_checkpoint(replace(PUBLISHED[DRAFT_SHAPE], seed=seed + 1), work / "draft"))
        vocabulary = load_checkpoint(large).vocabulary

        def build(arm: Arm) -> Callable[[], Any]:
            file = work / f"{arm.system}-{arm.precision}"
            match arm.system:
                case System.TRANSFORMERS:
                    return partial(Transformers, large)
                case System.FASTER_WHISPER:
                    suppress = sorted(vocabulary.suppress)
                    specials = range(vocabulary.end_of_text, len(vocabulary.tokens))
                    return partial(
                        FasterWhisper, save_ctranslate2(large, file), arm.precision, suppress, specials
                    )
                case System.OPENAI_WHISPER:
                    return partial(OpenaiWhisper, save_openai(large, file), vocabulary.end_of_text)
                case System.WHISPER_CPP:
                    return partial(WhisperCpp, save_ggml(large, file, is_int8=arm.precision == INT8))
                case _:
                    return partial(as_replay, large, small, trace, arm.precision, gamma)

        pieces = pieces_of(written, samples)
        with Programs(samples, build, core=cores[0], pieces=pieces) as programs:
            runs, missing = programs.measure(arms_of_shape(quick=quick), rounds, seed, console)
    title = f"{name}, random weights; ours replays {target}, and {draft} at the cost of {DRAFT_SHAPE}"
    digests = {"shape": name, target: written.target_digest, draft: written.draft_digest}
    figures = {"cores": cores, "gamma": gamma, "piece_tokens": [piece.num_tokens for piece in pieces]}
    _report(title, samples, runs, missing, {}, pieces, seed, check, json, digests, figures, console)


def _report(
    title: str,
    samples: Sequence[Sample],
    runs: Runs,
    missing: Mapping[Arm, str],
    rates: Mapping[Arm, float],
    pieces: Sequence[Piece],
    seed: int,
    check: bool,
    json: Path | None,
    models: Mapping[str, str],
    figures: Mapping[str, Any],
    console: Console,
) -> None:
    """Print and write what was found; exit with 1 if a text differs or, with ``check``, a bar is short."""
    different = differences(runs, pieces)
    for timestamps in (True, False):
        if chosen := {arm: of_arm for arm, of_arm in runs.items() if arm.timestamps == timestamps}:
            which = "" if pieces else ", with timestamps" if timestamps else ", without timestamps"
            print_table(chosen, different, rates, title=title + which, seed=seed, console=console)
    bars, open_claims = find_bars(runs, is_pair=not pieces, seed=seed)
    notes = [f"{arm}: {line}" for of_arms in (missing, different) for arm, line in of_arms.items()]
    if json is not None:
        content = {
            **figures,
            "peers": {package: _version(package) for package in PACKAGES},
            "samples": {sample.name: sample.duration_s for sample in samples},
            "bars": [*map(str, bars), *open_claims],
            "notes": notes,
            "runs": [_facts(arm, number, run) for arm in runs for number, run in enumerate(runs[arm])],
        }
        write_json(json, models=models, figures=content)
    holds = print_bars(bars, console) if check else True
    for line in [*(open_claims if check else ()), *notes]:
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    sys.exit(0 if holds and not any(map(is_broken, different)) else 1)


def _facts(arm: Arm, number: int, run: Run) -> dict[str, Any]:
    tokens = [len(of_recording) for of_recording in run.tokens]
    return asdict(arm) | {"round": number} | asdict(run) | {"tokens": tokens}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    try:
        app()
    except SpecWhisperError as error:
        sys.exit(f"experiments.peers: {error}")
