"""Saved checkpoints that a test may change."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from experiments.common.models.checkpoints import Shape

SHAPE = Shape(d_model=16, heads=1, decoder_layers=1, seed=4)
WEIGHTS = "model.safetensors"
COMMIT = "a" * 40


def in_hubs_cache(source: Path, root: Path, name: str) -> Path:
    """Copy a folder to where the hub's cache below a folder has a model, and return the model's."""
    model = root / f"models--{name.replace('/', '--')}"
    shutil.copytree(source, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    return model


def rewrite_weights(
    folder: Path,
    change: Callable[[str, torch.Tensor], torch.Tensor],
    *,
    rename: Callable[[str], str] = str,
    extra: Mapping[str, torch.Tensor] = {},
) -> None:
    """Change, rename and add weights."""
    weights = {rename(name): change(name, weight) for name, weight in load_file(folder / WEIGHTS).items()}
    weights |= {name: weight.detach().clone() for name, weight in extra.items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change_json(path: Path, **changes: object) -> None:
    """Change values of a JSON file; ``...`` removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
