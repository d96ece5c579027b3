"""``reproduce``: every measurement that docs/latency.md shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.common.audio.samples import BUNDLED, bundled
from experiments.common.bench.options import Quick, Seed
from experiments.common.bench.report import open_console

NETWORKED = ("--modes", "target-only,sync,pipelined,full")
WITH_ONE_PROCESS = ("--modes", "target-only,sync,pipelined,full,one-process", "--max-cores", "1")
REALIGNED = ("--hints", "realigned")
FEW = ("--rtt", "0,1.25,5", "--gamma", "chosen", "--repeats", "2")
BAD_NETWORK = ("--jitter-ms", "20", "--loss", "0.01", "--reordering", "0.05", "--stall", "0.5,5")
GRID = ("--gamma", "2,4,8,16,chosen", "--set-repeats", "1")
CHOSEN_ERRORS = ("--acceptance", "0.7,0.85,0.92", "--realigns", "0,0.8")
HINTED = (
    *("--modes", "target-only,full", "--hints", "off,realigned,given"),
    *("--rtt", "0,1.25,5,10", "--gamma", "chosen", "--repeats", "1"),
)
SEVERAL_RECORDINGS = ("--modes", "target-only,sync,full,one-process", "--max-cores", "1", "--check")
AT_BARS = ("--rtt", "0.25,1.25,5", "--gamma", "4,chosen", "--repeats", "1")
DEMO = ("--models", "demo", "--rtt", "0,1.25,5,10", "--gamma", "chosen", *REALIGNED, "--repeats", "7")
LONGER = [path for path in bundled() if path.suffix == ".ogg"]
SEVERAL_WINDOWS = str(BUNDLED / "06_the_clock_in_the_tower.ogg")
WINDOWS = (*FEW, "--modes", "target-only,full", "--encode", "--audio", SEVERAL_WINDOWS)
HINTS = ("--hints", "off,realigned,given")
FAR_APART = ("--rtt-ms", "5,40,150", "--slots", "128")
CROWD = ("--clients", "10000", "--targets", "40", "--duration-s", "30", "--modes", "target-only,full")
FOURTEEN = ("--clients", "10000", "--targets", "14", "--draft-servers", "160", "--slots", "256")
AT_8_MS = ("--pass-ms", "8", "--draft-ms", "2", "--draft-session-us", "200", "--max-lag-s", "2.5")
FAR_GPU = (*FAR_APART, "--search", "--duration-s", "40", "--clients", "512", "--modes", "target-only,full")
NEAR = ("--search", "--rtt-ms", "5", "--pass-ms", "8", "--draft-ms", "2", "--draft-session-us", "200")
NEAR_GPU = (*NEAR, "--max-lag-s", "2.5", "--duration-s", "40")
WITH_DRAFT = ("--clients", "768", "--slots", "256", "--modes", "sync,full", *HINTS)
ALONE = ("--clients", "384", "--slots", "128", "--modes", "target-only")
EIGHT = ("--sessions", "8", "--rtt", "0.05", "--pass-ms", "5", "--token-us", "181", "--session-us", "2200")
FREE_DRAFTS = ("--draft-ms", "0.1", "--draft-session-us", "0", "--per-draft-server", "8")


def commands(folder: Path, *, quick: bool, seed: int) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each part's command, by the part's name."""
    short = ("--quick",) if quick else ()
    seeded = ("--seed", str(seed))
    longer = [] if quick else [part for path in LONGER for part in ("--audio", str(path))]

    def sweep(name: str, *arguments: str) -> tuple[str, ...]:
        return ("sweep", "--out", str(folder / f"{name}.jsonl"), *arguments, *seeded, *short)

    return {
        "calibration": ("calibrate", *seeded, *short),
        "sweep": sweep("sweep", *GRID, "--check"),
        "plots": ("plot", "--sweep", str(folder / "sweep.jsonl"), "--folder", str(folder), *seeded),
        "longer recordings": sweep("longer_recordings", *SEVERAL_RECORDINGS, *AT_BARS, *longer),
        "bad network": sweep("bad_network", *NETWORKED, *FEW, *REALIGNED, *BAD_NETWORK),
        "demo pair": sweep("demo", *WITH_ONE_PROCESS, *DEMO),
        "chosen errors": sweep("chosen_errors", *HINTED, *CHOSEN_ERRORS),
        "next window": sweep("next_window", *WINDOWS),
        "one window at a time": sweep("one_window", "--no-next-window", *WINDOWS),
        "expected": ("expect", *short),
        "expected by errors": ("expect", *CHOSEN_ERRORS, *short),
        "expected with the distilled draft": ("expect", "--draft", "demo-draft-distil", *short),
        "many sessions on one target": ("together", *seeded, *short),
        "eight sessions, as measured": ("together", *EIGHT, *FREE_DRAFTS, *seeded, *short),
        "side branches": ("branches", *seeded, *short),
        "clients of a GPU that is near": ("simulate", *NEAR_GPU, *WITH_DRAFT, *seeded, *short),
        "clients of its target alone": ("simulate", *NEAR_GPU, *ALONE, *seeded, *short),
        "clients of a GPU near and far": ("simulate", *FAR_GPU, *seeded, *short),
        "ten thousand clients on fourteen GPUs": (
            *("simulate", *FOURTEEN, "--rtt-ms", "5,40,150", *AT_8_MS, "--duration-s", "30"),
            *("--modes", "target-only,full", *HINTS, *seeded, *short),
        ),
        "ten thousand clients": ("simulate", *FAR_APART, *CROWD, *HINTS, *seeded, *short),
    }


def reproduce(
    folder: Annotated[Path, typer.Option(file_okay=False, help="Folder of all figures.")] = Path("latency"),
    quick: Quick = False,
    seed: Seed = 0,
) -> None:
    """Run every part of docs/latency.md; interrupted sweeps continue.

    Each part prints its tables and writes its raw figures to the folder. With ``--quick`` each part runs its
    own quick form, some minutes in all.
    """
    console = open_console()
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, arguments in commands(folder, quick=quick, seed=seed).items():
        console.rule(f"{name}: experiments.latency {' '.join(arguments)}", align="left")
        figures = () if arguments[0] == "plot" else ("--json", str(folder / f"{name.replace(' ', '_')}.json"))
        command = [sys.executable, "-m", "experiments.latency", *arguments, *figures]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"experiments.latency: failed, or did not meet a bar: {', '.join(failed)}")
