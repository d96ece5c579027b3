"""Errors of a device: those that a smaller pass avoids, and those that only a new process gets over."""

from __future__ import annotations

import logging
import os
import re
from typing import NoReturn

import torch

from specwhisper.errors import DeviceFault

logger = logging.getLogger(__name__)

FAULT_STATUS = 70  # of a process that a device fault has ended (EX_SOFTWARE)

# How CUDA words errors behind which every later call fails too, whoever makes it.
FAULTS = re.compile(
    r"device-side assert|illegal memory access|illegal instruction|illegal address|misaligned address"
    r"|unspecified launch failure|launch timed out|hardware stack error|invalid program counter"
    r"|not supported on global/shared address space|uncorrectable",
    re.IGNORECASE,
)
# Torch has a kind of its own for this, but not everywhere.
NO_MEMORY = re.compile(r"CUDA error: out of memory|can't allocate memory|ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory was short, on a device or on the host; what was there before is whole."""
    is_worded_so = isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_worded_so


def is_device_fault(error: BaseException) -> bool:
    """Tell whether the device is lost to this process."""
    return isinstance(error, RuntimeError) and FAULTS.search(str(error)) is not None


def leave_process(fault: DeviceFault) -> NoReturn:
    """End the process at once: nothing that it could still say is to be trusted.

    Whoever watches it starts another one; sessions go on there, or elsewhere.
    """
    logger.critical("device fault", extra={"error": str(fault), "status": FAULT_STATUS})
    logging.shutdown()
    os._exit(FAULT_STATUS)
