"""``python -m experiments.sizing.placed``: main memory of a model by device map."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from json import dumps, loads
from pathlib import Path
from tempfile import TemporaryDirectory

import accelerate  # noqa: F401 (its memory is not the model's)
import typer
from rich.table import Table

import specwhisper.model.pytorch.backend  # noqa: F401
from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.servers.usage import resident_mb
from specwhisper.engine.process import return_freed_memory
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel

DISK: dict[str, int | str] = {"": "disk"}
MEMORY: dict[str, int | str] = {"": "cpu"}
MAPS = (DISK, {"encoder": "cpu", "decoder": "disk"}, MEMORY)
MAX_ON_DISK = 0.5  # of the memory that the model takes if it stays in memory, while it is loaded too


@dataclass(frozen=True, slots=True)
class Placed:
    """Resident memory of a process in MB: before it loads a model, with it, and at most."""

    libraries_mb: float
    loaded_mb: float
    peak_mb: float


def placed(quick: Quick = False, seed: Seed = 0, json: JsonFile = None, check: Check = False) -> None:
    """Measure memory with a model of small's shape on disk, in memory, and half of each."""
    console, shape = open_console(), "tiny" if quick else "small"
    found = {}
    with TemporaryDirectory() as root:
        folder = save_checkpoint(replace(PUBLISHED[shape], seed=seed), Path(root) / shape)
        for device_map in map(dumps, MAPS):
            command = [sys.executable, "-c", f"from {__spec__.name} import measure; measure()"]
            result = subprocess.run(
                [*command, str(folder), device_map], check=True, capture_output=True, text=True
            )
            found[device_map] = Placed(**loads(result.stdout))
    table = Table("device map", "libraries, MB", "with the model, MB", "peak, MB", title=f"{shape}'s shape")
    for device_map, one in found.items():
        table.add_row(device_map, *(f"{value:.0f}" for value in asdict(one).values()))
    console.print(table)
    disk, memory = found[dumps(DISK)], found[dumps(MEMORY)]
    bars = [
        Bar(f"model on disk over model in memory, {name}", ratio, MAX_ON_DISK, f"{ratio:.2f}")
        for name, mb in (("loaded", disk.loaded_mb), ("peak", disk.peak_mb))
        if (ratio := (mb - disk.libraries_mb) / (memory.loaded_mb - memory.libraries_mb))
        if name == "loaded" or not quick  # tiny's largest matrix is most of it
    ]
    if json is not None:
        figures = {"maps": {name: asdict(one) for name, one in found.items()}, "bars": list(map(str, bars))}
        write_json(json, models={"weights": "random", "shape": shape}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


def measure() -> None:
    """Print the memory with the model and the map of the command line, as JSON."""
    libraries_mb = resident_mb(os.getpid())
    with TemporaryDirectory() as root:
        checkpoint = load_checkpoint(sys.argv[1])
        model = WhisperModel(checkpoint, 1, device_map=loads(sys.argv[2]), offload_folder=Path(root))
        checkpoint.weights.close()
        return_freed_memory()
        loaded_mb = resident_mb(os.getpid())
        del model
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(dumps(asdict(Placed(libraries_mb, loaded_mb, int(peak) * 1024 / 1e6))))


if __name__ == "__main__":
    typer.run(placed)
