"""What runs in Ray: the servers that run without it, started, watched and ended by Serve."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any

from ray.serve.handle import DeploymentHandle

from specwhisper.observe.metrics.discovery import targets_page
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.rpc.leases import Leases
from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.serving import AddServicer, ServingOptions
from specwhisper.wire.v1.discovery_pb2_grpc import add_DiscoveryServicer_to_server
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_client.resolving import LOCATOR
from specwhisper_deploy import draft_locator, target_locator
from specwhisper_deploy.discovery import finder
from specwhisper_deploy.draft_locator import Directory, DraftLocatorService, DraftPlace
from specwhisper_deploy.grpc_replica import GrpcReplica, on_free_ports, once_ports_are_free, reachable
from specwhisper_deploy.handle_answers import TargetAnswers, Told
from specwhisper_deploy.health import NotServing, check_http
from specwhisper_deploy.nodes import configs_on_this_node
from specwhisper_deploy.ports import Flags
from specwhisper_deploy.routing import ADDRESS, HAS_ROOM, OPEN_SESSIONS, VOCABULARY, WEIGHTS
from specwhisper_deploy.target_locator import TargetLocatorService
from specwhisper_draft_server.command import read_config as read_draft
from specwhisper_gateway.command import read_config as read_gateway
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.command import read_config as read_target

logger = logging.getLogger(__name__)

FREE_PORT: Flags = {"port": 0}


class TargetReplica(GrpcReplica):
    """A target server; sessions come to its own address."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_target_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(read_target, FREE_PORT | flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0], Leases()))
        service, choices = self._service, [config.serving for config in configs]
        await self._listen(services_of(service), choices, service.say_goodbye, service.metrics)
        self._answers = TargetAnswers(service, self.address)

    async def locate(self, request: bytes, caller: str, known_first: bool = False) -> Told:
        """Answer the locator's ``Locate`` for a caller; the router reads ``known_first``."""
        return await self._answers.locate(request, caller, known_first)

    async def describe(self, request: bytes) -> Told:
        """Answer the locator's ``Describe``."""
        return await self._answers.describe(request)

    async def metrics_address(self) -> str:
        """Tell where its metrics are, if it serves any."""
        return self.metrics

    async def check_health(self) -> None:
        """Raise, or hang, unless engine and server answer."""
        await self._service.check_health()
        await super().check_health()

    def record_routing_stats(self) -> dict[str, Any]:
        """Tell the router how full it is, and what it is."""
        return {
            OPEN_SESSIONS: self._service.num_sessions,
            HAS_ROOM: self._service.has_room,
            ADDRESS: self.address,
            WEIGHTS: self._service.weights_digest,
            VOCABULARY: self._service.vocabulary_digest,
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell the autoscaler the same, and how long answers take."""
        return {"open_sessions": float(self._service.num_sessions), "answer_ms": self._service.answer_ms}


class _LocatorReplica(GrpcReplica):
    """One address that leads to many replicas, and a page that lists where their metrics are."""

    async def _lead(
        self, name: str, add: AddServicer, serving: ServingOptions, replicas: DeploymentHandle
    ) -> None:
        metrics = ServerMetrics("specwhisper_locator", model="", dtype="", device="")
        await self._listen({name: add}, [replace(serving, metrics_port=None)], metrics=metrics)
        if (port := serving.metrics_port) is not None:  # its own metrics, and where the replicas' are
            pages = targets_page(finder(replicas), metrics_page(metrics.collected))
            page = partial(serving_page, pages, serving.metrics_host, port)

            async def start() -> str:
                return await self._running.enter_async_context(page(serving.tls, serving.tokens))

            self.metrics = reachable(await once_ports_are_free(start, serving.drain_timeout_s))
            logger.info("tells targets", extra={"address": self.metrics})


class TargetLocatorReplica(_LocatorReplica):
    """The address that draft servers are configured with: it finds them targets."""

    async def __init__(self, flags: Flags, targets: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(read_target, flags)
        add = partial(add_VerificationServicer_to_server, TargetLocatorService(targets))
        await self._lead(target_locator.SERVICE_NAME, add, config.serving, targets)


class DraftLocatorReplica(_LocatorReplica):
    """The address that gateways are configured with: it lists draft servers."""

    async def __init__(self, flags: Flags, drafts: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(read_draft, flags)
        add = partial(
            add_DiscoveryServicer_to_server, DraftLocatorService(Directory(draft_locator.asking(drafts)))
        )
        await self._lead(draft_locator.SERVICE_NAME, add, config.serving, drafts)

    async def where(self) -> str:
        """Return where it is reached, as clients' ``--server`` takes it."""
        return f"{LOCATOR}{self.address}"


class DraftReplica(GrpcReplica):
    """A draft server."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_draft_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(read_draft, flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0]))
        services, choices = services_of(self._service, configs[0]), [config.serving for config in configs]
        await self._listen(services, choices, metrics=self._service.metrics)

    async def place(self) -> DraftPlace:
        """Answer the locator: where clients reach it, and for how many sessions it has room."""
        return DraftPlace(self.address, self._service.num_free_places)

    async def metrics_address(self) -> str:
        """Return where its metrics are, if it serves any."""
        return self.metrics

    async def check_health(self) -> None:
        """Raise, or hang, unless engines and server answer."""
        await self._service.check_health()
        await super().check_health()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell how many clients it has."""
        return {"open_sessions": float(self._service.num_sessions)}


class GatewayReplica:
    """A gateway."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_gateway.server import GatewayServer

        configs = configs_on_this_node(read_gateway, flags, may_be_local=True)
        self._config = configs[0]  # but for its ports, which are one choice of several

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

        self._server, self._serving = await once_ports_are_free(
            partial(on_free_ports, start, configs), self._config.drain_timeout_s
        )

    async def where(self) -> str:
        """Tell where it is reached."""
        return reachable(self._server.address)

    async def check_health(self) -> None:
        """Raise unless it answers in time; whoever is behind it may be away."""
        if self._serving.done():
            raise NotServing("The gateway has ended.")
        await check_http(self._server.address, self._config.tls)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many transcriptions it has."""
        return {"open_sessions": float(self._server.num_transcriptions)}

    async def __del__(self) -> None:
        """Let open requests end; Serve awaits it."""
        self._server.stop()
        await self._serving
