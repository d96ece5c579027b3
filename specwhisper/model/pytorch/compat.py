"""Find the device on which accelerate runs a layer; keep transformers quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from torch import nn
from transformers.utils import logging

_LOCK = Lock()  # transformers' settings of messages are the process's


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
