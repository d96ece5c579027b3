"""``python -m experiments.real``: the real pair on human speech."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import Sample
from experiments.common.bench.options import Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.models.as_transformers import as_transformers
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.demo_pair.pair import Pair, SetErrors, folder_recordings
from experiments.exactness import oracle
from experiments.real.arms import (
    ALONE,
    ALONE_INT8,
    FULL,
    PAIR,
    PAIR_INT8,
    PEER_FLOAT32,
    PEERS,
    TIMED,
    UNTIMED,
    Arm,
    Arms,
    Run,
)
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER, resolve
from specwhisper.model.threads import limit_threads
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper_client.cli.tuning.advice import Ratio

HUMAN = DEMO_FOLDER / "human"
QUICK_ROUNDS = 2
Runs = Mapping[Arm, Sequence[Run]]


def real(
    target: Target = "base",
    draft: Draft = "tiny.en",
    folder: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Recordings and metadata.jsonl.")
    ] = HUMAN,
    rounds: Annotated[int, typer.Option(min=2, help="How often every arm transcribes everything.")] = 8,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Compare modes, transformers and faster-whisper on real weights and human speech, one core each.

    ``specwhisper models get tiny.en base`` fetches the models.
    """
    console = open_console()
    try:
        spoken = folder_recordings(folder)
        samples = [one.sample for one in spoken]
        checkpoint = load_checkpoint(target)
        special = checkpoint.vocabulary.end_of_text, checkpoint.vocabulary.timestamp_begin
        source = Path(resolve(target))
        peer_folder = source if (source / "model.bin").is_file() else None
        cores = first_two_cores()
        with Arms(target, draft, special, peer_folder, cores) as arms:
            missing = {arm: reason for arm in TIMED if (reason := arms.missing(arm))}
            timed = [arm for arm in TIMED if arm not in missing]
            runs = measure(arms, timed, samples, QUICK_ROUNDS if quick else rounds, seed, console)
            untimed = {arm: [arms.run(arm, samples)] for arm in UNTIMED}
        with on_cores(cores[:1]):
            limit_threads(1)
            references = transformers_tokens(checkpoint, samples)
            errors = Pair.load(target, [draft]).measure(spoken, "en")
    except SpecWhisperError as error:
        sys.exit(f"experiments.real: {error}")
    exact = {arm: of_arm for arm, of_arm in {**runs, **untimed}.items() if arm.dtype == "float32"}
    different = count_differences(exact, references)
    same_in_int8 = count_differences({PAIR_INT8: runs[PAIR_INT8]}, runs[ALONE_INT8][0].tokens)
    print_times(runs, missing, console)
    print_agreement(draft, errors, console)
    bars = find_bars(runs, errors.drafts[draft].agreement.acceptance, sum(different.values()), same_in_int8)
    if json is not None:
        figures = {
            "recordings": {sample.name: sample.duration_s for sample in samples},
            "runs": [facts(arm, one) for arm, of_arm in {**runs, **untimed}.items() for one in of_arm],
            "agreement": errors.facts(),
            "different": {str(arm): number for arm, number in different.items()},
            "not_measured": {str(arm): reason for arm, reason in missing.items()},
            "bars": [*map(str, bars)],
        }
        models = {name: load_checkpoint(name).weights_digest for name in (target, draft)}
        write_json(json, models=models, figures=figures)
    holds = print_bars(bars, console)
    sys.exit(1 if check and not holds else 0)


def measure(
    arms: Arms, timed: Sequence[Arm], samples: Sequence[Sample], rounds: int, seed: int, console: Console
) -> dict[Arm, list[Run]]:
    """Warm every arm up on one recording, then take all of them in every round, in a new order."""
    runs: dict[Arm, list[Run]] = {arm: [] for arm in timed}
    random = Random(seed)
    with console.status("") as status:
        for arm in timed:
            status.update(f"starting: {arm}")
            arms.run(arm, samples[:1])
        for number in range(rounds):
            for arm in random.sample(timed, len(timed)):
                status.update(f"round {number + 1} of {rounds}: {arm}")
                runs[arm].append(arms.run(arm, samples))
    return runs


def transformers_tokens(checkpoint: Checkpoint, samples: Sequence[Sample]) -> tuple[tuple[int, ...], ...]:
    """Return what transformers' ``generate`` writes for each recording."""
    model = as_transformers(checkpoint)
    texts = [
        oracle.transcribe(model, sample.pcm, DecodingOptions.greedy(language="en")) for sample in samples
    ]
    return tuple(tuple(t for segment in text.segments for t in segment.tokens) for text in texts)


def count_differences(runs: Runs, references: Sequence[Sequence[int]]) -> dict[Arm, int]:
    """Count the tokens of each arm that are not the reference's; faster-whisper has its own text."""
    return {
        arm: sum(
            sum(a != b for a, b in zip(tokens, reference, strict=False)) + abs(len(tokens) - len(reference))
            for run in of_arm
            for tokens, reference in zip(run.tokens, references, strict=True)
        )
        for arm, of_arm in runs.items()
        if arm not in PEERS
    }


def ratio(runs: Runs, arm: Arm, reference: Arm) -> Ratio | None:
    """Return an arm's time over another's, each pair of one recording in one round."""
    if arm not in runs or reference not in runs:
        return None
    return Ratio.paired(*([s for run in runs[one] for s in run.wall_s] for one in (arm, reference)))


def find_bars(
    runs: Runs, agreement: float, num_different: int, different_in_int8: Mapping[Arm, int]
) -> list[Bar]:
    """Return all bars of what was measured."""
    full, pair = (accumulated(runs[arm]) for arm in (FULL, PAIR))
    per_pass = full.num_committed / full.num_forwards
    bars = [
        Bar("tokens that differ from transformers", num_different, 1, str(num_different)),
        *(
            Bar(f"{arm}: tokens that differ from target-only's", number, 1, str(number))
            for arm, number in different_in_int8.items()
        ),
        Bar("agreement given the target's prefix", agreement, 0.93, f"{agreement:.1%}", at_least=True),
    ]
    for arm, statistics in ((PAIR, pair), (FULL, full)):
        accepted = statistics.num_accepted / max(1, statistics.num_verified)
        bars.append(Bar(f"{arm}: accepted of verified", accepted, 0.8, f"{accepted:.1%}", at_least=True))
    bars.append(Bar(f"{FULL}: tokens a forward pass", per_pass, 5, f"{per_pass:.2f}", at_least=True))
    for arm, bound in ((ALONE, 0.9), (PAIR, 0.75), (PAIR_INT8, 0.48)):
        if (taken := ratio(runs, arm, PEER_FLOAT32)) is not None:
            bars.append(Bar(f"{arm}: time over that of {PEER_FLOAT32}", taken.value, bound, str(taken)))
    return bars


def accumulated(runs: Sequence[Run]) -> SpeculationStatistics:
    """Return the statistics of all runs together."""
    total = SpeculationStatistics()
    for run in runs:
        total.add(run.statistics)
    return total


def print_times(runs: Runs, missing: Mapping[Arm, str], console: Console) -> None:
    """Print the time of every arm beside the target alone and faster-whisper."""
    table = Table(
        "",
        "seconds",
        f"over {ALONE}",
        f"over {PEER_FLOAT32}",
        "tokens a pass",
        "accepted of verified",
        caption="seconds: of all recordings, on one core; over two servers one for each of them. "
        "Ratios: geometric mean over recordings and rounds, with its 95 % interval.",
    )
    for arm, of_arm in runs.items():
        statistics = accumulated(of_arm)
        seconds = sum(map(sum, (run.wall_s for run in of_arm))) / len(of_arm)
        has_draft = statistics.num_verified > 0
        table.add_row(
            str(arm),
            f"{seconds:.2f}",
            *(str(ratio(runs, arm, other) or "") for other in (ALONE, PEER_FLOAT32)),
            f"{statistics.num_committed / statistics.num_forwards:.2f}" if statistics.num_forwards else "",
            f"{statistics.num_accepted / statistics.num_verified:.1%}" if has_draft else "",
        )
    console.print(table)
    for arm, reason in missing.items():
        console.print(f"{arm}: {reason}", style="yellow", highlight=False, markup=False)


def print_agreement(draft: str, errors: SetErrors, console: Console) -> None:
    """Print how the draft agrees with the target."""
    found = errors.drafts[draft].agreement
    console.print(
        f"{draft} chooses the target's token after the target's text at {found.acceptance:.1%} of "
        f"{found.num_tokens} places; after a correction its own text holds again in {found.realigns:.0%} of "
        f"{found.num_corrections}, for {found.mean_run:.1f} tokens. Word error rate: target "
        f"{errors.target_wer:.1%}, {draft} alone {errors.drafts[draft].wer:.1%}.",
        highlight=False,
    )


def facts(arm: Arm, run: Run) -> dict[str, Any]:
    """Return a run as plain values."""
    tokens = [len(of_recording) for of_recording in run.tokens]
    return {"arm": str(arm), "wall_s": run.wall_s, "tokens": tokens, "statistics": asdict(run.statistics)}


if __name__ == "__main__":
    typer.run(real)
