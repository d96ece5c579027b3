"""The private APIs of torch, transformers and accelerate that this package uses, and their output.

``tests/unit/model/test_model_compat.py`` fails where a release changes the APIs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from torch import nn
from transformers import WhisperTokenizer
from transformers.utils import logging

_LOCK = Lock()  # transformers' settings of messages are the process's
# The last releases that were tried.
TORCH, TRANSFORMERS, ACCELERATE = "2.13", "5.24", "1.15"


def join_chunks(
    tokenizer: WhisperTokenizer,
    chunks: Sequence[tuple[Sequence[int], tuple[float, float, float]]],
    *,
    timestamps: bool,
    time_step_s: float,
) -> tuple[str, list[dict[str, Any]]]:
    """Join overlapping chunks as transformers' pipeline does.

    Parameters
    ----------
    chunks : each with its tokens and stride (length and both overlaps, in seconds).

    Returns
    -------
    The text and, with timestamps, its parts as dictionaries with ``text`` and ``timestamp``.
    """
    outputs = [
        {"tokens": torch.tensor([tokens], dtype=torch.long), "stride": stride} for tokens, stride in chunks
    ]
    text, found = tokenizer._decode_asr(
        outputs, return_timestamps=timestamps or None, return_language=None, time_precision=time_step_s
    )
    return text, found["chunks"] if timestamps else []


def execution_device(layer: nn.Module) -> torch.device:
    """Return the device that runs a layer; accelerate may offload its weights."""
    for module in layer.modules():
        hook = getattr(module, "_hf_hook", None)
        if getattr(hook, "execution_device", None) is not None:
            return torch.device(hook.execution_device)  # type: ignore[union-attr]
    return next(layer.parameters()).device


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Call transformers in the context: it shows errors only.

    It shows no bar of loading weights. Bars of downloads stay, since those take minutes. The caller's own
    settings return afterwards.
    """
    with _LOCK:
        verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        has_downloads = not are_progress_bars_disabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()  # and those of downloads with them
        if has_downloads:
            enable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if had_bars:
                logging.enable_progress_bar()
            if not has_downloads:
                disable_progress_bars()
