"""Serve replicas, each of which runs one server that also runs without Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import TargetUnavailable
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.metrics_server import metrics_page, serving_page, targets_page
from specwhisper.rpc.serving import AddServicer
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tokens import Leases
from specwhisper.wire.v1.discovery_pb2_grpc import add_DiscoveryServicer_to_server
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_client.resolving import LOCATOR
from specwhisper_deploy import compat, locators
from specwhisper_deploy.grpc_replica import (
    GrpcReplica,
    NotServing,
    advertised_address,
    check_http,
    started,
)
from specwhisper_deploy.locators import (
    DraftLocatorService,
    DraftServerRoom,
    HandleReply,
    TargetLocatorService,
    describe_reply,
    locate_reply,
)
from specwhisper_deploy.placement import Flags, configs_on_this_node
from specwhisper_deploy.routing import ADDRESS, HAS_ROOM, OPEN_SESSIONS, VOCABULARY, WEIGHTS
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig

logger = logging.getLogger(__name__)

FREE_PORT: Flags = {"port": 0}
ANSWER_TIMEOUT_S = 2.0


class TargetReplica(GrpcReplica):
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_target_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(TargetConfig, FREE_PORT | flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0], Leases()))
        service = self._service
        await self._listen(services_of(service), configs, service.announce_drain, service.metrics)

    async def locate(self, request: bytes, caller: str) -> HandleReply:
        return await locate_reply(self._service, self.address, request, caller)

    async def describe(self, request: bytes) -> HandleReply:
        return await describe_reply(self._service, request)

    async def check_health(self) -> None:
        """Raise, or hang, unless engine and server answer."""
        await self._service.check_health()
        await super().check_health()

    def record_routing_stats(self) -> dict[str, Any]:
        return {
            OPEN_SESSIONS: self._service.num_sessions,
            HAS_ROOM: self._service.has_room,
            ADDRESS: self.address,
            WEIGHTS: self._service.weights_digest,
            VOCABULARY: self._service.vocabulary_digest,
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._service.num_sessions), "answer_ms": self._service.answer_ms}


def metrics_addresses(
    replicas: DeploymentHandle, timeout_s: float = ANSWER_TIMEOUT_S
) -> Callable[[], list[str]]:
    """Return a thread-safe function that lists the replicas' metrics addresses.

    It leaves out replicas that have died. If one hangs it raises an error, so that Prometheus keeps its last
    list.
    """
    loop = asyncio.get_running_loop()

    async def ask() -> list[str]:
        try:
            results = await compat.call_all_replicas(replicas, "metrics_address", timeout_s)
            if any(isinstance(result, asyncio.CancelledError) for result in results):
                raise TimeoutError
        except (TimeoutError, RayError, RayServeException) as error:
            raise TargetUnavailable(
                f"Not all replicas have reported within {timeout_s:g} s where their metrics are; try again."
            ) from error
        return sorted(result for result in results if isinstance(result, str) and result)

    return lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result()


class _LocatorReplica(GrpcReplica):
    """One address for many replicas, and an HTTP page that lists their metrics."""

    async def _serve_locator(
        self, name: str, add: AddServicer, serving: ServingOptions, replicas: DeploymentHandle
    ) -> None:
        metrics = ServerMetrics("specwhisper_locator", model="", dtype="", device="")
        await self._listen({name: add}, [replace(serving, metrics_port=None)], metrics=metrics)
        if (port := serving.metrics_port) is not None:  # the locator's own metrics, and the list
            pages = targets_page(metrics_addresses(replicas), metrics_page(metrics.collected))
            page = partial(serving_page, pages, serving.metrics_host, port)

            async def start(_: ServingOptions) -> str:
                return await self._running.enter_async_context(page(serving.tls, serving.tokens))

            self.metrics = advertised_address(await started(start, [serving]))
            logger.info("target list ready", extra={"address": self.metrics})


class TargetLocatorReplica(_LocatorReplica):
    """The address that draft servers are configured with; it finds targets."""

    async def __init__(self, flags: Flags, targets: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(TargetConfig, flags)
        add = partial(add_VerificationServicer_to_server, TargetLocatorService(targets))
        await self._serve_locator(locators.TARGETS_SERVICE, add, config, targets)


class DraftLocatorReplica(_LocatorReplica):
    """The address that gateways are configured with; it lists draft servers."""

    async def __init__(self, flags: Flags, drafts: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(DraftConfig, flags)
        add = partial(add_DiscoveryServicer_to_server, DraftLocatorService(drafts))
        await self._serve_locator(locators.DRAFTS_SERVICE, add, config, drafts)

    async def client_address(self) -> str:
        """Return the address as clients' ``--server`` takes it."""
        return f"{LOCATOR}{self.address}"


class DraftReplica(GrpcReplica):
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_draft_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(DraftConfig, flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0]))
        services = services_of(self._service, configs[0])
        await self._listen(services, configs, metrics=self._service.metrics)

    async def room(self) -> DraftServerRoom:
        return DraftServerRoom(self.address, self._service.num_free_sessions)

    async def check_health(self) -> None:
        await self._service.check_health()
        await super().check_health()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._service.num_sessions)}


class GatewayReplica:
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_gateway.server import GatewayServer

        configs = configs_on_this_node(GatewayConfig, flags, may_be_local=True)
        self._config = configs[0]  # its port may be any of the range

        async def start(config: GatewayConfig) -> tuple[GatewayServer, asyncio.Task[None]]:
            server = GatewayServer(config)
            serving = asyncio.create_task(server.serve())
            ready = asyncio.create_task(server.ready.wait())
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if serving.done():
                await serving
                raise NotServing("The gateway has ended before it was ready.")
            return server, serving

        self._server, self._serving = await started(start, configs)

    async def client_address(self) -> str:
        return advertised_address(self._server.address)

    async def check_health(self) -> None:
        """Raise unless the gateway answers in time; its draft servers need not."""
        if self._serving.done():
            raise NotServing("The gateway has ended.")
        await check_http(self._server.address, self._config.tls)

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._server.num_transcriptions)}

    async def __del__(self) -> None:
        """Let open requests end; Serve awaits it."""
        self._server.stop()
        await self._serving
