"""Run forward passes so that an error ends only the session at fault."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from specwhisper.model.choosing import Row, Scores
from specwhisper.model.faults import is_device_fault
from specwhisper.model.model import Model

logger = logging.getLogger(__name__)


def run_forward(
    model: Model,
    rows: Sequence[Row],
    *,
    clock: Callable[[], int],
    on_scores: Callable[[Sequence[Row], Sequence[Scores], int, int], None],
    on_error: Callable[[Row, Exception], None],
) -> None:
    """Score rows; after an error, score each half again, down to the row at fault.

    Parameters
    ----------
    on_scores : called after each forward pass with its rows, their scores, its start and its time in ns.
    on_error : called with a row that fails alone, or with any row after a device fault.
    """
    started_ns = clock()
    held = [model.length(row.slot) for row in rows]
    scores = None
    try:
        scores = model.score(rows)
    except Exception as error:
        if len(rows) == 1 or is_device_fault(error):
            on_error(rows[0], error)
            return
        logger.warning("forward pass repeated", extra={"sessions": len(rows), "error": str(error)})
    if scores is not None:
        on_scores(rows, scores, started_ns, clock() - started_ns)
        return
    # Outside of the except block, because the error keeps the memory of the failed pass alive.
    for row, length in zip(rows, held, strict=True):
        model.rollback(row.slot, length)
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        run_forward(model, part, clock=clock, on_scores=on_scores, on_error=on_error)
