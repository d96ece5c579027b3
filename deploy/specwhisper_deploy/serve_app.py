"""Applications for Ray Serve: ``targets`` and ``drafts`` with a locator each, and ``gateway``.

What each server is told are the flags of its command line. Every replica runs the same server that runs
without Ray; Ray starts, watches, counts and replaces them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from specwhisper.cli.command_lines import config_from
from specwhisper.errors import InvalidRequest
from specwhisper.rpc.health import CHECK_WITHIN_S
from specwhisper_deploy.ports import Flags, port_choices
from specwhisper_deploy.replicas import (
    FREE_PORT,
    DraftLocatorReplica,
    DraftReplica,
    GatewayReplica,
    TargetLocatorReplica,
    TargetReplica,
)
from specwhisper_deploy.routing import STATS_PERIOD_S, LeastSessions
from specwhisper_draft_server.command import read_config as read_draft
from specwhisper_gateway.command import read_config as read_gateway
from specwhisper_target_server.command import read_config as read_target

# Questions that a replica answers at once; Serve's own limit of five would make the sixth wait.
MANY = 1_000
FAILED_CHECKS = 3  # in a row, behind which Serve replaces a replica
STOP_MARGIN_S = 10.0  # behind the drain, until Serve kills
# Of every replica; no call of Serve's is ever long.
OWN: dict[str, Any] = {
    "max_ongoing_requests": MANY,
    "graceful_shutdown_wait_loop_s": 0.5,
    "health_check_period_s": 5.0,
    "health_check_timeout_s": CHECK_WITHIN_S / FAILED_CHECKS,
}
# What a locator shares with its replicas unless it has flags of its own: how it listens and whom it lets in.
SHARED_WITH_LOCATOR = (
    "host",
    "metrics-host",
    "insecure",
    "grpc-use-ssl",
    "grpc-use-ssl-mutual",
    "grpc-server-cert",
    "grpc-server-key",
    "grpc-root-cert",
    "tokens-file",
    "log-format",
    "log-level",
)

Target = serve.deployment(
    name="Target",
    # A target that is replaced says so to its sessions, which move to those of the new version: all of them
    # at once, where there is room for both.
    rolling_update_percentage=1.0,
    request_router_config=RequestRouterConfig(
        request_router_class=LeastSessions, request_routing_stats_period_s=STATS_PERIOD_S
    ),
    **OWN,
)(TargetReplica)
TargetLocator = serve.deployment(name="Locator", ray_actor_options={"num_cpus": 0.1}, **OWN)(
    TargetLocatorReplica
)
Draft = serve.deployment(name="Draft", **OWN)(DraftReplica)
DraftLocator = serve.deployment(name="Locator", ray_actor_options={"num_cpus": 0.1}, **OWN)(
    DraftLocatorReplica
)
Gateway = serve.deployment(name="Gateway", **OWN)(GatewayReplica)


Config = TypeVar("Config")

# Of each application: the part of its arguments that has its servers' flags, and what reads them.
READS: dict[str, tuple[str, Callable[..., Any]]] = {
    "targets": ("target", read_target),
    "drafts": ("draft", read_draft),
    "gateway": ("gateway", read_gateway),
}


class Ports(Protocol):
    """What says at which ports a server listens."""

    @property
    def port(self) -> int:
        """Port of its calls; 0 for a free one."""

    @property
    def metrics_port(self) -> int | None:
        """Port of its metrics; ``None`` where they have none of their own."""


class Arguments(BaseModel):
    """What stands in a configuration file below ``args``; each part are the flags of a command line."""

    model_config = ConfigDict(extra="forbid")


class TargetsArguments(Arguments):
    """Of ``targets``: flags of specwhisper-target-server, and those of the locator that differ."""

    target: Flags = Field(default_factory=dict)
    locator: Flags = Field(default_factory=dict)


class DraftsArguments(Arguments):
    """Of ``drafts``: flags of specwhisper-draft-server, and of a locator, if there is to be one."""

    draft: Flags = Field(default_factory=dict)
    locator: Flags | None = None


class GatewayArguments(Arguments):
    """Of ``gateway``: flags of specwhisper-gateway."""

    gateway: Flags = Field(default_factory=dict)


def targets(args: dict[str, Any]) -> Application:
    """Build targets of one checkpoint and their locator; an application for each checkpoint."""
    arguments = TargetsArguments.model_validate(args)
    flags = FREE_PORT | arguments.target
    target = _first_config(read_target, flags).serving
    replicas = Target.options(**_until_drained(target.drain_timeout_s), **_apart(flags, target))
    locator = _locator_flags(arguments.target, arguments.locator, "target")
    of_locator = config_from(read_target, locator).serving
    locators = TargetLocator.options(
        **_until_drained(of_locator.drain_timeout_s), **_apart(locator, of_locator)
    )
    return locators.bind(locator, replicas.bind(arguments.target))


def drafts(args: dict[str, Any]) -> Application:
    """Build draft servers, and the locator that leads gateways to them."""
    arguments = DraftsArguments.model_validate(args)
    flags = arguments.draft
    draft = _first_config(read_draft, flags).serving
    replicas = Draft.options(**_until_drained(draft.drain_timeout_s), **_apart(flags, draft)).bind(flags)
    if arguments.locator is None:
        return replicas
    locator = _locator_flags(flags, arguments.locator, "draft server")
    if "port" not in locator:
        raise InvalidRequest(
            "The locator of draft servers needs a port of its own: write locator: {port: 50050}."
        )
    of_locator = config_from(read_draft, locator).serving
    locators = DraftLocator.options(
        **_until_drained(of_locator.drain_timeout_s), **_apart(locator, of_locator)
    )
    return locators.bind(locator, replicas)


def gateway(args: dict[str, Any]) -> Application:
    """Build gateways."""
    flags = GatewayArguments.model_validate(args).gateway
    config = _first_config(read_gateway, flags)
    return Gateway.options(**_until_drained(config.drain_timeout_s), **_apart(flags, config)).bind(flags)


def _locator_flags(replicas: Flags, locator: Flags, whose: str) -> Flags:
    """Return all flags of a locator: those that it shares with its replicas, and its own."""
    flags = {flag: value for flag, value in replicas.items() if flag in SHARED_WITH_LOCATOR} | locator
    if unknown := flags.keys() - {"port", "metrics-port", *SHARED_WITH_LOCATOR}:
        raise InvalidRequest(
            f"A locator has no flag {', '.join(sorted(unknown))}: it may stand with the {whose}."
        )
    return flags


def _first_config(read: Callable[..., Config], flags: Flags) -> Config:
    """Check flags, ranges of ports among them."""
    return config_from(read, port_choices(flags)[0])


def _until_drained(drain_timeout_s: float) -> dict[str, float]:
    """Have Serve wait for a drain before it kills."""
    return {"graceful_shutdown_timeout_s": drain_timeout_s + STOP_MARGIN_S}


def _apart(flags: Flags, config: Ports) -> dict[str, int]:
    """Have as many replicas on a node as there are ports for, where they are not free ones."""
    if not any((config.port, config.metrics_port)):
        return {}
    return {"max_replicas_per_node": len(port_choices(flags))}
