"""Applications for Ray Serve: ``targets``, ``drafts`` and ``gateway``.

Targets and draft servers have a locator. The arguments of an application are the flags of its servers'
command lines. Ray starts, checks, scales and replaces the replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.serving import CHECK_WITHIN_S
from specwhisper.rpc.serving_options import ListenerOptions
from specwhisper.settings.command_line import config_from
from specwhisper.settings.setting import Config
from specwhisper_deploy.placement import Flags, port_choices
from specwhisper_deploy.replicas import (
    FREE_PORT,
    DraftLocatorReplica,
    DraftReplica,
    GatewayReplica,
    TargetLocatorReplica,
    TargetReplica,
)
from specwhisper_deploy.routing import STATS_PERIOD_S, LeastSessions
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig

MAX_CALLS = 1_000  # concurrent calls over handles; Serve's default of five would queue the sixth
FAILED_CHECKS = 3  # in a row, after which Serve replaces a replica
STOP_MARGIN_S = 10.0  # from the end of the drain to Serve's kill
COMMON: dict[str, Any] = {  # options of every deployment
    "max_ongoing_requests": MAX_CALLS,
    "graceful_shutdown_wait_loop_s": 0.5,
    "health_check_period_s": 5.0,
    "health_check_timeout_s": CHECK_WITHIN_S / FAILED_CHECKS,
}
LOCATOR_CPUS = {"num_cpus": 0.1}
# Flags of its replicas that a locator uses unless it has its own: how it listens, which callers it admits.
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
    # Sessions migrate from a replaced target to one of the new version, so both should run at once.
    rolling_update_percentage=1.0,
    request_router_config=RequestRouterConfig(
        request_router_class=LeastSessions, request_routing_stats_period_s=STATS_PERIOD_S
    ),
    **COMMON,
)(TargetReplica)
TargetLocator = serve.deployment(name="Locator", ray_actor_options=LOCATOR_CPUS, **COMMON)(
    TargetLocatorReplica
)
Draft = serve.deployment(name="Draft", **COMMON)(DraftReplica)
DraftLocator = serve.deployment(name="Locator", ray_actor_options=LOCATOR_CPUS, **COMMON)(DraftLocatorReplica)
Gateway = serve.deployment(name="Gateway", **COMMON)(GatewayReplica)


# By application: the argument that holds its servers' flags, and their settings class.
SETTINGS: dict[str, tuple[str, type[ListenerOptions]]] = {
    "targets": ("target", TargetConfig),
    "drafts": ("draft", DraftConfig),
    "gateway": ("gateway", GatewayConfig),
}


def _arguments(args: Mapping[str, Any], *parts: str) -> Iterator[Flags | None]:
    """Yield the flags of an application's parts; ``None`` for a part without any."""
    for name, flags in args.items():
        if name not in parts or not isinstance(flags, dict | None):
            raise InvalidRequest(
                f"'{name}: {flags}' is not an argument: write flags below {' or '.join(parts)}."
            )
    yield from map(args.get, parts)


def targets(args: dict[str, Any]) -> Application:
    """Build targets of one checkpoint and their locator, from the flags of both."""
    target, own = (flags or {} for flags in _arguments(args, "target", "locator"))
    if target.get("standby"):
        raise InvalidRequest(
            "Under Ray a spare target shares the load: write num_standby among the autoscaling policy's "
            "arguments, and leave standby out."
        )
    flags = FREE_PORT | target
    replicas = Target.options(**_options(flags, _first_config(TargetConfig, flags)))
    locator_flags = _locator_flags(target, own, "target")
    locator = TargetLocator.options(**_options(locator_flags, config_from(TargetConfig, locator_flags)))
    return locator.bind(locator_flags, replicas.bind(target))


def drafts(args: dict[str, Any]) -> Application:
    """Build draft servers and, if it has flags, their locator."""
    draft, own = _arguments(args, "draft", "locator")
    flags = draft or {}
    replicas = Draft.options(**_options(flags, _first_config(DraftConfig, flags))).bind(flags)
    if own is None:
        return replicas
    locator_flags = _locator_flags(flags, own, "draft server")
    if "port" not in locator_flags:
        raise InvalidRequest(
            "The locator of draft servers needs a port of its own: write locator: {port: 50050}."
        )
    locator = DraftLocator.options(**_options(locator_flags, config_from(DraftConfig, locator_flags)))
    return locator.bind(locator_flags, replicas)


def gateway(args: dict[str, Any]) -> Application:
    flags = next(_arguments(args, "gateway")) or {}
    return Gateway.options(**_options(flags, _first_config(GatewayConfig, flags))).bind(flags)


def _locator_flags(replicas: Flags, locator: Flags, server: str) -> Flags:
    shared = {flag: value for flag, value in replicas.items() if flag in SHARED_WITH_LOCATOR}
    if "metrics-port" not in locator:
        shared.pop("metrics-host", None)
    flags = shared | locator
    if unknown := flags.keys() - {"port", "metrics-port", *SHARED_WITH_LOCATOR}:
        raise InvalidRequest(
            f"A locator has no flag {', '.join(sorted(unknown))}; write it with the flags of the {server}."
        )
    return flags


def _first_config(settings: type[Config], flags: Flags) -> Config:
    return config_from(settings, port_choices(flags)[0])


def _options(flags: Flags, serving: ListenerOptions) -> dict[str, float]:
    """Return the options of a deployment that depend on its servers' flags.

    Serve kills a replica only after its drain. A node has at most as many replicas as ports.
    """
    options = {"graceful_shutdown_timeout_s": serving.drain_timeout_s + STOP_MARGIN_S}
    if serving.port or serving.metrics_port:
        options["max_replicas_per_node"] = len(port_choices(flags))
    return options
