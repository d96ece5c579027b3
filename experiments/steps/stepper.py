"""Step decoders of this tree or of an earlier one, on command: run as a file, with that tree's modules.

Standard input has lines of a checkpoint's folder, a dtype, sessions and tokens, separated by tabs. Each is
answered by the milliseconds of processor time that a pass takes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import cache

from experiments.steps.subjects import Ours
from specwhisper.model.checkpoints.checkpoint import load_checkpoint

SLOTS, HELD, STEPS, UNTIMED = 8, 60, 8, 2


@cache
def subject(folder: str, dtype: str) -> Ours:
    """Build a checkpoint's decoder with the tree's engine."""
    return Ours(replace(load_checkpoint(folder), dtype=dtype), slots=SLOTS, held=HELD)


def main() -> None:
    """Answer lines until there are no more."""
    for line in sys.stdin:
        folder, dtype, rows, width = line.rstrip("\n").split("\t")
        step = subject(folder, dtype).step
        for _ in range(UNTIMED):
            step(int(rows), int(width))
        started_s = time.process_time()
        for _ in range(STEPS):
            step(int(rows), int(width))
        print(1e3 * (time.process_time() - started_s) / STEPS, flush=True)


if __name__ == "__main__":
    main()
