"""Models of published shapes with random weights, whose cost a replay has."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.common.models.checkpoints import build_model, checkpoint_from_model
from experiments.common.models.published import PUBLISHED
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.types import DTYPES


def random_checkpoint(shape: str, *, dtype: str = "float32", seed: int = 0) -> Checkpoint:
    """Build a published shape with random weights of a ``dtype``."""
    if shape not in PUBLISHED:
        raise InvalidRequest(f"Unknown shape '{shape}': choose one of {', '.join(PUBLISHED)}.")
    if dtype not in DTYPES:
        raise InvalidRequest(f"Unknown dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    model, tokens = build_model(replace(PUBLISHED[shape], seed=seed))
    model.to(torch.float32 if dtype == "int8" else getattr(torch, dtype))
    checkpoint = checkpoint_from_model(model, tokens, name=f"random {shape}")
    return replace(checkpoint, dtype=dtype)


def replay_name(shape: str, name: str) -> str:
    return f"replay {shape} of {name}"
