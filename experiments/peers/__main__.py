"""``python -m experiments.peers``: this project beside other programs, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NoReturn

import typer

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.program import Program, Rounds, program
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.record import record
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
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.options import DecodingOptions

PACKAGES = ("ctranslate2", "faster-whisper", "onnxruntime", "openai-whisper", "pywhispercpp", "tokenizers")
TARGET, DRAFT = "demo-target", "demo-draft-tiny"
DISTILLED = "demo-draft-distil"  # has the target's encoder: for transformers' assistant, and ours
DRAFT_SHAPE = "tiny"
QUICK_ROUNDS, QUICK_SHAPE = 2, "base"

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
@program
def pair(
    given: Program,
    rounds: Rounds = 5,
) -> None:
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
                return partial(Transformers, folder, resolve(DISTILLED))
            if arm.system in OURS:
                return partial(on_pair, TARGET, DRAFT, DISTILLED, arm.precision)
            if not converted.exists():
                save_ctranslate2(folder, converted)
            suppress, has_languages = sorted(vocabulary.suppress), bool(vocabulary.languages)
            return partial(FasterWhisper, converted, arm.precision, suppress, is_multilingual=has_languages)

        special = special_of(checkpoint)
        serve = partial(served_pair, TARGET, DRAFT, special=special, cores=cores)
        with Programs(samples, build, core=cores[0], serve=serve) as programs:
            arms = arms_of_pair(quick=given.quick)
            runs, missing = programs.measure(arms, rounds, given.seed, given.console)
    rates = word_error_rates(runs, samples, vocabulary)
    digests = {name: load_checkpoint(name).weights_digest for name in (TARGET, DRAFT, DISTILLED)}
    figures = {
        "cores": cores,
        "word_error_rates": {str(arm): rate for arm, rate in rates.items()},
    }
    end(given, TARGET, samples, runs, missing, rates, (), digests, figures)


@app.command()
@program
def shape(
    given: Program,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PUBLISHED)}.")] = "small",
    rounds: Rounds = 5,
) -> None:
    """Time per token at the cost of a published shape, with the same random weights for all.

    Ours replays the demo pair (true cost, true acceptance). The others write as many tokens for each window
    as the demo target did, without the rules of timestamps. ``--quick`` takes base, in float32.
    """
    if given.quick:
        name, rounds = QUICK_SHAPE, QUICK_ROUNDS
    if name not in PUBLISHED:
        raise InvalidRequest(f"There is no shape '{name}': choose one of {', '.join(PUBLISHED)}.")
    cores, work, seed = first_two_cores(), given.folder, given.seed
    samples = load_samples(None)[: given.choose(1, 2)]
    with on_cores(cores[1:]):
        options = [DecodingOptions.greedy(language="en")]
        written = record(samples, target=TARGET, draft=DRAFT, options=options)
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
                    return partial(as_replay, large, small, written, arm.precision)

        pieces = pieces_of(written, samples)
        with Programs(samples, build, core=cores[0], pieces=pieces) as programs:
            arms = arms_of_shape(quick=given.quick)
            runs, missing = programs.measure(arms, rounds, seed, given.console)
    title = f"{name}, random weights; ours replays {TARGET}, and {DRAFT} at the cost of {DRAFT_SHAPE}"
    digests = {"shape": name, TARGET: written.target_digest, DRAFT: written.draft_digest}
    figures = {"cores": cores, "piece_tokens": [piece.num_tokens for piece in pieces]}
    end(given, title, samples, runs, missing, {}, pieces, digests, figures)


def end(
    given: Program,
    title: str,
    samples: Sequence[Sample],
    runs: Runs,
    missing: Mapping[Arm, str],
    rates: Mapping[Arm, float],
    pieces: Sequence[Piece],
    models: Mapping[str, str],
    figures: Mapping[str, Any],
) -> NoReturn:
    """Print and write what was found; exit with 1 if a text differs or, with ``--check``, a bar is short."""
    different = differences(runs, pieces)
    for timestamps in (True, False):
        if chosen := {arm: of_arm for arm, of_arm in runs.items() if arm.timestamps == timestamps}:
            which = "" if pieces else ", with timestamps" if timestamps else ", without timestamps"
            print_table(chosen, different, rates, title=title + which, seed=given.seed, console=given.console)
    bars, open_claims = find_bars(runs, is_pair=not pieces, seed=given.seed)
    wrong = [f"{arm}: {line}" for arm, line in different.items() if is_broken(arm)]
    notes = [f"{arm}: {line}" for of_arms in (missing, different) for arm, line in of_arms.items()]
    for line in (*open_claims, *notes):
        given.print(line, style="yellow")
    content = {
        **figures,
        "peers": {package: _version(package) for package in PACKAGES},
        "samples": {sample.name: sample.duration_s for sample in samples},
        "notes": [*open_claims, *notes],
        "runs": [_facts(arm, number, run) for arm in runs for number, run in enumerate(runs[arm])],
    }
    given.end(models, content, bars, wrong)


def _facts(arm: Arm, number: int, run: Run) -> dict[str, Any]:
    tokens = [len(of_recording) for of_recording in run.tokens]
    return asdict(arm) | {"round": number} | asdict(run) | {"tokens": tokens}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    app()
