"""``python -m experiments.real``: the real pair on human speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import Sample
from experiments.common.bench.program import Draft, Folder, Program, Target, program
from experiments.common.bench.report import Bar, none
from experiments.common.models.checkpoints import as_transformers
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.demo_pair.pair import Pair, folder_recordings, print_errors
from experiments.exactness import oracle
from experiments.peers.arms import FLOAT16, FLOAT32, INT8, OURS, Arm, Run, System, facts
from experiments.peers.formats import save_ggml, save_openai
from experiments.peers.others import FasterWhisper, OpenaiWhisper, Transformers, WhisperCpp
from experiments.peers.programs import Offered, Programs, served_pair, special_of
from experiments.peers.summary import Runs, ratio
from specwhisper.errors import UnsupportedOption
from specwhisper.model.backends import limit_threads
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER, resolve
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics

HUMAN = DEMO_FOLDER / "human"
QUICK_ROUNDS = 2
ALONE, PAIR, FULL, PEER, TARGET_SERVED, SYNC, PIPELINED = (
    Arm(system, FLOAT32, timestamps=True)
    for system in (
        *(System.TARGET_ONLY, System.ONE_PROCESS, System.FULL, System.FASTER_WHISPER),
        *(System.SERVED_TARGET_ONLY, System.SYNC, System.PIPELINED),
    )
)
ALONE_INT8, PAIR_INT8, PEER_INT8 = (Arm(arm.system, INT8, timestamps=True) for arm in (ALONE, PAIR, PEER))
OTHERS = tuple(
    Arm(system, precision, timestamps=True)
    for system, precision in (
        *((System.TRANSFORMERS, FLOAT32), (System.OPENAI_WHISPER, FLOAT32)),
        *((System.WHISPER_CPP, FLOAT16), (System.WHISPER_CPP, INT8)),
    )
)
TIMED = (ALONE, PAIR, FULL, PEER, ALONE_INT8, PAIR_INT8, PEER_INT8)
UNTIMED = (TARGET_SERVED, SYNC, PIPELINED)


@program
def real(
    given: Program,
    target: Target = "base",
    draft: Draft = "tiny.en",
    folder: Folder = HUMAN,
    rounds: Annotated[int, typer.Option(min=2, help="How often every arm transcribes everything.")] = 8,
) -> None:
    """Compare modes and other programs on real weights and human speech, one core each.

    ``specwhisper models get tiny.en base`` fetches the models.
    """
    spoken, cores = folder_recordings(folder), first_two_cores()
    samples, checkpoint, source = [one.sample for one in spoken], load_checkpoint(target), resolve(target)

    def build(arm: Arm) -> Callable[[], Any]:
        file = given.folder / f"{arm.system}-{arm.precision}"
        match arm.system:
            case System.TRANSFORMERS:
                return partial(Transformers, target)
            case System.OPENAI_WHISPER:
                return partial(OpenaiWhisper, save_openai(target, file))
            case System.WHISPER_CPP:
                return partial(WhisperCpp, save_ggml(target, file, is_int8=arm.precision == INT8))
            case System.FASTER_WHISPER:
                if not (Path(source) / "model.bin").is_file():
                    raise UnsupportedOption("the target is not a CTranslate2 folder")
                return partial(FasterWhisper, source, arm.precision)
            case _:
                drafts = {System.ONE_PROCESS: draft}
                return partial(Offered, target, drafts, arm.precision, draft_dtype=INT8, cut_windows=True)

    options = "--dtype", INT8, "--cut-windows"
    serve = partial(served_pair, target, draft, *options, special=special_of(checkpoint), cores=cores)
    with Programs(samples, build, core=cores[0], serve=serve) as programs:
        rounds = given.choose(QUICK_ROUNDS, rounds)
        arms = given.choose(TIMED, TIMED + OTHERS)
        runs, missing = programs.measure(arms, rounds, given.seed, given.console)
        every = runs | {arm: [programs.run(arm)] for arm in UNTIMED}
    with on_cores(cores[:1]):
        limit_threads(1)
        references = transformers_tokens(checkpoint, samples)
        errors = Pair.load(target, [draft]).measure(spoken)
    exact = {arm: of_arm for arm, of_arm in every.items() if arm.precision == FLOAT32}
    different = count_differences(exact, references)
    same_in_int8 = count_differences({PAIR_INT8: runs[PAIR_INT8]}, runs[ALONE_INT8][0].tokens)
    print_times(runs, given.console)
    for arm, reason in missing.items():
        given.print(f"{arm.name}: {reason}", style="yellow")
    print_errors("recordings", errors, given.console)
    figures = {
        "recordings": {sample.name: sample.duration_s for sample in samples},
        "runs": [facts(arm, one) for arm, of_arm in every.items() for one in of_arm],
        "agreement": errors.facts(),
        "different": {arm.name: number for arm, number in different.items()},
        "not_measured": {arm.name: reason for arm, reason in missing.items()},
    }
    agreement = errors.drafts[draft].agreement.acceptance
    bars = find_bars(runs, agreement, sum(different.values()), same_in_int8)
    given.end({name: load_checkpoint(name).weights_digest for name in (target, draft)}, figures, bars)


def transformers_tokens(checkpoint: Checkpoint, samples: Sequence[Sample]) -> tuple[tuple[int, ...], ...]:
    model, options = as_transformers(checkpoint), DecodingOptions.greedy(language="en")
    texts = [oracle.transcribe(model, sample.pcm, options) for sample in samples]
    return tuple(tuple(t for segment in text.segments for t in segment.tokens) for text in texts)


def count_differences(runs: Runs, references: Sequence[Sequence[int]]) -> dict[Arm, int]:
    """Count the tokens of each of our arms that are not the reference's; other programs have their own."""
    return {
        arm: sum(
            sum(a != b for a, b in zip(tokens, reference, strict=False)) + abs(len(tokens) - len(reference))
            for run in of_arm
            for tokens, reference in zip(run.tokens, references, strict=True)
        )
        for arm, of_arm in runs.items()
        if arm.system in OURS
    }


def find_bars(
    runs: Runs, agreement: float, num_different: int, different_in_int8: Mapping[Arm, int]
) -> list[Bar]:
    full, pair = (accumulated(runs[arm]) for arm in (FULL, PAIR))
    per_pass = full.tokens_per_forward
    bars = [
        none("tokens that differ from transformers", num_different),
        *(
            none(f"{arm.name}: tokens that differ from target-only's", number)
            for arm, number in different_in_int8.items()
        ),
        Bar("agreement given the target's prefix", agreement, 0.93, f"{agreement:.1%}", at_least=True),
    ]
    for arm, statistics in ((PAIR, pair), (FULL, full)):
        accepted, name = statistics.acceptance_rate, f"{arm.name}: accepted of verified"
        bars.append(Bar(name, accepted, 0.8, f"{accepted:.1%}", at_least=True))
    bars.append(Bar(f"{FULL.name}: tokens a forward pass", per_pass, 5, f"{per_pass:.2f}", at_least=True))
    for arm, bound in ((ALONE, 0.9), (PAIR, 0.75), (PAIR_INT8, 0.48)):
        if (taken := ratio(runs, arm, PEER)) is not None:
            bars.append(Bar(f"{arm.name}: time over that of {PEER.name}", taken.value, bound, str(taken)))
    return bars


def accumulated(runs: Sequence[Run]) -> SpeculationStatistics:
    total = SpeculationStatistics()
    for run in runs:
        total.add(run.statistics)
    return total


def print_times(runs: Runs, console: Console) -> None:
    table = Table(
        *("", "seconds", f"over {ALONE.name}", f"over {PEER.name}", "tokens a pass", "accepted of verified"),
        caption="seconds: of all recordings, on one core; over servers one for each of the two. "
        "Ratios: geometric mean over recordings and rounds, with its 95 % interval.",
    )
    for arm, of_arm in runs.items():
        statistics = accumulated(of_arm)
        seconds = sum(map(sum, (run.wall_s for run in of_arm))) / len(of_arm)
        table.add_row(
            arm.name,
            f"{seconds:.2f}",
            *(str(ratio(runs, arm, other) or "") for other in (ALONE, PEER)),
            f"{statistics.tokens_per_forward:.2f}" if statistics.num_forwards else "",
            f"{statistics.acceptance_rate:.1%}" if statistics.num_verified else "",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(real)
