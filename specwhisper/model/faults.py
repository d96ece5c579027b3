"""Errors of a device: out of memory, and faults that end the process."""

from __future__ import annotations

import logging
import os
import re
from typing import NoReturn

from specwhisper.errors import DeviceFault

logger = logging.getLogger(__name__)

FAULT_STATUS = 70  # exit status of a process after a device fault (EX_SOFTWARE)

# CUDA's messages for errors after which every later call of the process fails too.
FAULTS = re.compile(
    r"device-side assert|illegal memory access|illegal instruction|illegal address|misaligned address"
    r"|unspecified launch failure|launch timed out|hardware stack error|invalid program counter"
    r"|not supported on global/shared address space|uncorrectable",
    re.IGNORECASE,
)
# Not every place in torch raises OutOfMemoryError; the last ones are ONNX Runtime's.
NO_MEMORY = re.compile(
    r"(CUDA|HIP) error: out of memory|MPS backend out of memory|can't allocate memory|ALLOC_FAILED"
    r"|std::bad_alloc|Failed to allocate memory"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory was short, on a device or the host; old data is intact."""
    # torch's class by its name: a process that runs no model of torch does not load it.
    is_torch = "OutOfMemoryError" in {kind.__name__ for kind in type(error).__mro__}
    # ONNX Runtime's exceptions are of no common class.
    is_runtime = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")
    is_message = is_runtime and NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError) or is_torch or is_message


def is_device_fault(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and FAULTS.search(str(error)) is not None


def leave_process(fault: DeviceFault) -> NoReturn:
    """End the process at once, because its results can no longer be trusted.

    Its supervisor starts another one; sessions resume there, or at another server.
    """
    logger.critical("device fault", extra={"error": str(fault), "status": FAULT_STATUS})
    logging.shutdown()
    os._exit(FAULT_STATUS)
