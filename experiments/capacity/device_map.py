"""``device-map``: main memory of a model by the map of its modules to memory and disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from json import dumps, loads
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from experiments.capacity.conclusion import conclude
from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console
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
# accelerate and the backend are loaded first: their memory is not the model's.
MEASURE = f"""
import accelerate, specwhisper.model.pytorch.backend
from {__name__} import measure
measure()
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """Resident memory of a process in MB: before it loads a model, with it, and at most."""

    libraries_mb: float
    loaded_mb: float
    peak_mb: float


def device_map(quick: Quick = False, seed: Seed = 0, json: JsonFile = None, check: Check = False) -> None:
    """Measure memory with a model of small's shape on disk, in memory, and half of each."""
    console, shape = open_console(), "tiny" if quick else "small"
    found = {}
    with TemporaryDirectory() as root:
        folder = save_checkpoint(replace(PUBLISHED[shape], seed=seed), Path(root) / shape)
        for placed_at in map(dumps, MAPS):
            command = [sys.executable, "-c", MEASURE, str(folder), placed_at]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            found[placed_at] = Placed(**loads(result.stdout))
    table = Table("device map", "libraries, MB", "with the model, MB", "peak, MB", title=f"{shape}'s shape")
    for placed_at, one in found.items():
        table.add_row(placed_at, *(f"{value:.0f}" for value in asdict(one).values()))
    console.print(table)
    disk, memory = found[dumps(DISK)], found[dumps(MEMORY)]
    in_memory_mb = memory.loaded_mb - memory.libraries_mb
    bars = [
        Bar(f"model on disk over model in memory, {name}", ratio, MAX_ON_DISK, f"{ratio:.2f}")
        for name, mb in (("loaded", disk.loaded_mb), ("peak", disk.peak_mb))
        if name == "loaded" or not quick  # tiny's largest matrix is most of it
        if (ratio := (mb - disk.libraries_mb) / in_memory_mb) is not None
    ]
    figures = {"maps": {name: asdict(one) for name, one in found.items()}}
    conclude(bars, figures, {"weights": "random", "shape": shape}, console, json=json, check=check)


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
