"""Addresses of the metrics of all replicas of a deployment.

They change: replicas come and go, and take free ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import TargetUnavailable

ANSWER_TIMEOUT_S = 2.0


def metrics_addresses(
    replicas: DeploymentHandle, timeout_s: float = ANSWER_TIMEOUT_S
) -> Callable[[], list[str]]:
    """Return a thread-safe function that lists the replicas' metrics addresses.

    Addresses have the form ``HOST:PORT``. The function leaves out replicas that have died. It raises
    :class:`TargetUnavailable` where one hangs, so that Prometheus keeps its previous list.
    """
    loop = asyncio.get_running_loop()

    async def ask() -> list[str]:
        try:
            call = replicas.broadcast("metrics_address")
            results = await call.results_async(timeout_s=timeout_s, return_exceptions=True)
        except (TimeoutError, RayError, RayServeException) as error:
            raise TargetUnavailable(
                f"Not all replicas have reported within {timeout_s:g} s where their metrics are; try again."
            ) from error
        return sorted(result for result in results if isinstance(result, str) and result)

    return lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result()
