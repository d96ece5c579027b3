"""Where the targets behind a locator serve their metrics: they come and go, and take free ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import TargetUnavailable

ANSWER_S = 2.0


def finder(targets: DeploymentHandle, answer_s: float = ANSWER_S) -> Callable[[], list[str]]:
    """Give what asks every target where its metrics are, from any thread.

    It raises :class:`TargetUnavailable` where they do not all answer: whoever reads it keeps what was known,
    as Prometheus does, instead of forgetting one that hangs. One that has died is left out.
    """
    loop = asyncio.get_running_loop()

    async def ask() -> list[str]:
        try:
            asked = targets.broadcast("metrics_address")
            told = await asked.results_async(timeout_s=answer_s, return_exceptions=True)
        except (TimeoutError, RayError, RayServeException) as error:
            raise TargetUnavailable(
                f"Not all targets have told within {answer_s:g} s where their metrics are; try again."
            ) from error
        return sorted(address for address in told if isinstance(address, str) and address)

    return lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result()
