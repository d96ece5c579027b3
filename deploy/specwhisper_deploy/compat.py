"""The private API of Ray that this package uses; ``tests/unit/deploy/test_ray_compat.py`` checks it."""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ServeDeploySchema

RAY = "2.60"  # the last release that was tested


def apply_config(schema: ServeDeploySchema) -> None:
    """Apply a configuration as ``serve run FILE`` does; replicas that it does not change keep running.

    Ray's public calls either restart all replicas (``serve.run``) or need the dashboard (its REST API).
    """
    _get_global_client().deploy_apps(schema, _blocking=False)


def start_deleting(name: str) -> None:
    """Delete an application, without waiting until its replicas have drained."""
    serve.delete(name, _blocking=False)


def graceful_shutdown_timeouts(name: str) -> list[float]:
    """Return the seconds that each deployment of an application has to drain."""
    applications = _get_global_client().get_serve_details()["applications"]
    deployments = applications.get(name, {}).get("deployments", {}).values()
    return [each["deployment_config"]["graceful_shutdown_timeout_s"] for each in deployments]


async def call_all_replicas(replicas: DeploymentHandle, method: str, timeout_s: float) -> list[Any]:
    """Call a method of all replicas; return each one's result or exception.

    The result of a replica that doesn't answer in time is a ``CancelledError``. The public ``results_async``
    returns nothing at all if one replica hangs. Raise ``TimeoutError`` if Ray doesn't name the replicas.
    """
    calls: list[asyncio.Future[Any]] = []
    try:
        async with asyncio.timeout(timeout_s):
            results = await replicas.broadcast(method)._fetch_replica_results_async()
            calls = [asyncio.ensure_future(result.get_async()) for result in results]
            await asyncio.gather(*calls, return_exceptions=True)
    except TimeoutError:
        if not calls:
            raise
    finally:
        for call in calls:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    return outcomes
