"""``python -m experiments.sizing.placed``: main memory of a model by device map."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import accelerate  # noqa: F401 (its memory is not the model's)

import specwhisper.model.pytorch.backend  # noqa: F401
from experiments.common.models.checkpoints import save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.common.servers.usage import resident_mb
from specwhisper.engine.process import return_freed_memory
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel

MODEL = "small"
MAPS: tuple[dict[str, int | str], ...] = (
    {"": "disk"},
    {"encoder": "cpu", "decoder": "disk"},
    {"": "cpu"},
)


def placed() -> None:
    """Print a table in Markdown; each map is followed in a process of its own."""
    print("| device map | libraries, MB | with the model, MB | peak, MB |\n|---|---|---|---|")
    with TemporaryDirectory() as root:
        folder = save_checkpoint(PUBLISHED[MODEL], Path(root) / MODEL)
        for device_map in MAPS:
            command = [sys.executable, "-m", __spec__.name, str(folder), json.dumps(device_map)]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def _row(folder: str, device_map: dict[str, int | str]) -> str:
    libraries = resident_mb(os.getpid())
    with TemporaryDirectory() as root:
        checkpoint = load_checkpoint(folder)
        model = WhisperModel(checkpoint, 1, device_map=device_map, offload_folder=Path(root))
        checkpoint.weights.close()
        return_freed_memory()
        loaded = resident_mb(os.getpid())
        del model
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return f"| `{json.dumps(device_map)}` | {libraries:.0f} | {loaded:.0f} | {int(peak) * 1024 / 1e6:.0f} |"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(_row(sys.argv[1], json.loads(sys.argv[2])))
    else:
        placed()
