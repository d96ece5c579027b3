"""``python -m experiments.streaming``: live transcription of human speech in real time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from random import Random

import typer
from rich.console import Console

from experiments.common.bench.program import Draft, Folder, Program, Target, program
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.demo_pair.pair import folder_recordings
from experiments.streaming.arms import ARMS, FULL, Arms, Measured
from experiments.streaming.simulated import COSTS_S, NUM_SESSIONS, print_simulated, simulate
from experiments.streaming.table import NUM_TOGETHER, find_bars, other_texts, print_rows, rows_of
from experiments.streaming.takes import Condition, Recorder, Take
from specwhisper.model.backends import limit_threads
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER

FAST = 50.0
Planned = tuple[str, Take, int, float]  # arm, number of concurrent sessions, times real time
HUMAN = DEMO_FOLDER / "human"

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
@program
def live(
    given: Program,
    target: Target = "base",
    draft: Draft = "tiny.en",
    folder: Folder = HUMAN,
) -> None:
    """Send human speech to live servers: when text is shown and final, how it changes, what it costs.

    It is clean, in noise, by telephone, and two speakers in turn. Beside the draft that shows and the target
    that confirms: target-only, and other programs where they are installed. ``specwhisper models get tiny.en
    base`` fetches the models.
    """
    cores = first_two_cores()
    takes, encode_s = recorded(target, folder, given.seed, quick=given.quick)
    with on_cores(cores[1:]), ExitStack() as stack:
        arms = Arms(target, draft, cores, stack)
        missing = {arm: reason for arm in ARMS if (reason := arms.missing(arm))}
        plan = planned([arm for arm in ARMS if arm not in missing], takes, given.seed, quick=given.quick)
        measured = measure(arms, plan, given.console)
    print_rows(rows_of(measured), missing, given.console)
    given.print(f"Bound: the target encodes 30 s of audio in {encode_s:.2f} s of one core.")
    for line in other_texts(measured)[0]:
        given.print(f"other text: {line}", style="yellow")
    figures = {
        "encode_s": encode_s,
        "takes": [asdict(take) | {"pcm": None} for take in takes],
        "sessions": [one.facts for one in measured],
        "not_measured": missing,
    }
    models = {name: load_checkpoint(name).weights_digest for name in (target, draft)}
    given.end(models, figures, find_bars(measured))


@app.command()
@program
def simulated(given: Program, target: Target = "base", folder: Folder = HUMAN) -> None:
    """Simulate the delays at the costs of a GPU, without servers; the target finds the words."""
    takes, _ = recorded(target, folder, given.seed, quick=given.quick)
    found = [simulate(takes, num_sessions, given.seed) for num_sessions in NUM_SESSIONS]
    print_simulated(found, given.console)
    given.end({"target": target}, {"costs_s": COSTS_S, "simulated": [*map(asdict, found)]})


def recorded(target: str, folder: Path, seed: int, *, quick: bool) -> tuple[list[Take], float]:
    """Return the takes, and the seconds in which the target encodes a window."""
    with on_cores(first_two_cores()[:1]):
        limit_threads(1)
        recorder = Recorder(target, seed)
        takes = recorder.takes([one.sample for one in folder_recordings(folder)], quick=quick)
        return takes, recorder.encode_s()


def planned(arms: Sequence[str], takes: Sequence[Take], seed: int, *, quick: bool) -> list[Planned]:
    """Return the plan in random order; a quick run has other arms than ``full`` on clean audio only."""
    some = takes[:1] if quick else takes
    plan: list[Planned] = [(FULL, take, 1, 1.0) for take in takes]
    plan += [(FULL, take, 1, FAST) for take in some]
    plan += [(FULL, takes[0], count, 1.0) for count in ([] if quick else [2]) + [NUM_TOGETHER]]
    plan += [(arm, take, 1, 1.0) for arm in arms if arm != FULL for take in some]
    return Random(seed).sample(plan, len(plan))


def measure(arms: Arms, plan: Sequence[Planned], console: Console) -> list[Measured]:
    """Run the plan after a warm-up of each arm; sort its sessions by arm."""
    measured: list[Measured] = []
    with console.status("warming up") as status:
        for arm in {arm: None for arm, *_ in plan}:
            arms.warm_up(arm, plan[0][1])
        for number, (arm, take, num_sessions, speed) in enumerate(plan):
            which = f"{number + 1} of {len(plan)}: {arm}, {take.condition}"
            status.update(f"{which}, {num_sessions} x {speed:g}")
            measured += arms.run(arm, take, num_sessions, speed)
    place = {name: number for number, name in enumerate((*ARMS, *Condition))}
    return sorted(measured, key=lambda one: (place[one.arm], one.num_sessions, place[one.take.condition]))


if __name__ == "__main__":
    app()
