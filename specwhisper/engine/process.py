"""Set up a server process before it loads a model: cores, threads and logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import torch
from huggingface_hub.utils.tqdm import disable_progress_bars
from transformers.utils import logging as transformers_logging

from specwhisper.errors import InvalidRequest


def prepare_process(device: str, num_threads: int | None, cores: Sequence[int] | None) -> None:
    """Check the device, set cores and threads, redirect the libraries' logs."""
    if cores is not None:
        pin(cores)
    check_device(device, "--device")
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    logging.captureWarnings(True)
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()


def pin(cores: Sequence[int]) -> None:
    """Keep this process and its threads on some cores."""
    if not hasattr(os, "sched_setaffinity"):
        raise InvalidRequest("--cores does not work on this system: leave it out.")
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        usable = sorted(os.sched_getaffinity(0))
        raise InvalidRequest(f"--cores is {list(cores)}, but this process may use {usable}.") from error


def check_device(device: str, flag: str) -> None:
    """Try a device before a model is loaded for it; ``flag`` names it in the error."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InvalidRequest(f"{flag} is '{device}', which cannot be used here: {reason}.") from error
