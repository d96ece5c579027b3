"""Tasks of asyncio that run beside their callers."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve an error that no caller may await, so that asyncio does not log it.

    Pass it to ``add_done_callback``.
    """
    if not task.cancelled():
        task.exception()
