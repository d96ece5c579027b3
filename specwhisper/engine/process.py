"""A server's process: cores, threads and logs before it loads a model; its end after a device fault."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from specwhisper.errors import DeviceFault, InvalidRequest
from specwhisper.extras import needs_extra
from specwhisper.model.backends import Library, limit_threads
from specwhisper.validated import DEVICE, called

logger = logging.getLogger(__name__)


def prepare_process(device: str | None, num_threads: int | None, cores: Sequence[int] | None) -> str | None:
    """Set cores and threads, try the device, and redirect the libraries' logs.

    Parameters
    ----------
    device : where the models run; ``None`` without models.
    num_threads : what models on CPUs may use.

    Returns
    -------
    The device, where it was "auto" the one that was found.
    """
    if cores is not None:
        pin(cores)
    if num_threads is not None:
        limit_threads(num_threads)
    logging.captureWarnings(True)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return None if device is None else check_device(device, called("device"))


def redirect_logs(library: Library) -> None:
    """Redirect the logs of what runs a model, before it is loaded."""
    if library == "pytorch":
        with needs_extra("a model that ONNX Runtime cannot run, by its type, shape or device,", "server"):
            from transformers.utils import logging as transformers_logging

        transformers_logging.disable_default_handler()
        transformers_logging.enable_propagation()
        transformers_logging.disable_progress_bar()


def return_freed_memory() -> None:
    """Return freed memory to the system; glibc keeps it otherwise."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def pin(cores: Sequence[int]) -> None:
    """Keep this process and its threads on some cores."""
    if not hasattr(os, "sched_setaffinity"):
        raise InvalidRequest("--cores does not work on this system: leave it out.")
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        usable = sorted(os.sched_getaffinity(0))
        raise InvalidRequest(
            f"{called('cores')} is {list(cores)}, but this process may use {usable}."
        ) from error


def check_device(device: str, flag: str) -> str:
    """Try a device before a model is loaded for it; return it, "auto" resolved. Errors name the flag."""
    device = resolve_device(device)
    if device == "cpu":
        return device
    with needs_extra(f"{flag} {device}", "server"):
        import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        if not DEVICE.allows(str(device)):  # torch's reason is a list of all that it was ever built for
            raise InvalidRequest(f"{flag} is '{device}': {DEVICE.message}.") from None
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InvalidRequest(
            f"{flag} is '{device}', which cannot be used here: {reason}; choose cpu, or auto."
        ) from error
    return device


def default_device() -> str:
    """Return "cuda" where torch is installed and finds such a GPU, else "cpu"."""
    if find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_device(device: str) -> str:
    """Return a device; "auto" is the first of cuda (ROCm's too), mps and cpu that there is."""
    if device != "auto":
        return device
    if (found := default_device()) != "cpu" or find_spec("torch") is None:
        return found
    import torch

    return "mps" if torch.backends.mps.is_available() else "cpu"


FAULT_STATUS = 70  # exit status of a process after a device fault (EX_SOFTWARE)


def leave_process(fault: DeviceFault) -> NoReturn:
    """End the process at once, because its results can no longer be trusted.

    Its supervisor starts another one; sessions resume there, or at another server.
    """
    logger.critical("device fault", extra={"error": str(fault), "status": FAULT_STATUS})
    logging.shutdown()
    os._exit(FAULT_STATUS)
