"""Mixed precision, where the processor multiplies bfloat16."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

CPU_FLAGS = Path("/proc/cpuinfo")


@cache
def multiplies_bfloat16() -> bool:
    """Return whether bfloat16 is faster than float32 here; elsewhere it is emulated and slower."""
    flags = CPU_FLAGS.read_text() if CPU_FLAGS.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


def mixed() -> torch.autocast:
    """Return a context whose matrix products are in bfloat16 if that pays; weights stay as they are."""
    return torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bfloat16())
