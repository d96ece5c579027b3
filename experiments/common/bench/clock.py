"""Sleep by the monotonic clock, which all processes of a machine share."""

from __future__ import annotations

import asyncio
import time


async def sleep_until(at_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
