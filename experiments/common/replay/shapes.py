"""What a replay model computes: a model of a published shape, with random weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.common.models.checkpoints import build_model
from experiments.common.models.published import PUBLISHED
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoint import Checkpoint, checkpoint_from_model, rounded
from specwhisper.types import DTYPES

FREE = "free"  # the shape that computes nothing


def random_checkpoint(
    shape: str, *, dtype: str = "float32", device: str = "cpu", seed: int = 0
) -> Checkpoint:
    """Make up the weights of a published shape; ``dtype`` is one of those a checkpoint can be loaded in."""
    if shape not in PUBLISHED:
        raise InvalidRequest(f"There is no shape '{shape}': choose one of {', '.join(PUBLISHED)}, {FREE}.")
    if dtype not in DTYPES:
        raise InvalidRequest(f"There is no dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    model, tokens = build_model(replace(PUBLISHED[shape], seed=seed))
    model.to(torch.float32 if dtype == "int8" else getattr(torch, dtype))
    checkpoint = checkpoint_from_model(model, tokens, name=f"random {shape}")
    checkpoint.encoder.to(device)  # the decoder follows when it is placed
    return rounded(checkpoint) if dtype == "int8" else checkpoint


def replay_name(shape: str, name: str) -> str:
    """Label a replay model, wherever it is named."""
    return f"replay {shape} of {name}"
