"""Hosts and ports of replicas.

A port is fixed, any free one (0), or one of a range, from which each replica on a node takes another. In a
cluster of several nodes the host is the node's own address, since no node reaches another node's 127.0.0.1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

import ray
import ray.util

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.addresses import is_loopback
from specwhisper.settings.command_line import config_from
from specwhisper.settings.setting import Config, Settings

Flags = dict[str, str | int | float | bool | list[str] | None]

PORT_FLAGS = ("port", "metrics-port")
RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
NEEDS = "needs encryption and tokens, or `insecure: true` in a network where every client may use it"


def port_choices(flags: Flags) -> list[Flags]:
    """Return a replica's flags once for each port that it may take, in order.

    ``{"port": "50051-50054"}`` has four choices. Two ranges are paired, so they have equal lengths.
    """
    ranges = {
        name: _parse_range(name, value)
        for name in PORT_FLAGS
        if isinstance(value := flags.get(name), str) and not value.isdecimal()
    }
    if not ranges:
        return [dict(flags)]
    num_ports = {len(ports) for ports in ranges.values()}
    for name in PORT_FLAGS:
        if name not in ranges and int(str(flags.get(name) or 0)):
            num_ports.add(1)
    if len(num_ports) > 1:
        given = ", ".join(f"{name}: {flags[name]}" for name in PORT_FLAGS if flags.get(name))
        raise InvalidRequest(
            f"Each replica takes one port of both: write ranges of equal length, or 0 ({given})."
        )
    return [
        {**flags, **dict(zip(ranges, ports, strict=True))} for ports in zip(*ranges.values(), strict=True)
    ]


def _parse_range(name: str, value: str) -> range:
    found = RANGE.fullmatch(value.strip())
    first, last = (int(port) for port in found.groups()) if found else (0, 0)
    if not 0 < first <= last < 65_536:
        raise InvalidRequest(
            f"{name} is '{value}': write a port, 0 for a free one, or a range such as 50051-50054."
        )
    return range(first, last + 1)


def configs_on_this_node(settings: type[Config], flags: Flags, *, may_be_local: bool = False) -> list[Config]:
    """Return a replica's configurations with a host for this node, one for each port that it may take.

    ``may_be_local``: whether ``host: 127.0.0.1`` is accepted on several nodes.
    """
    own_ip = ray.util.get_node_ip_address()
    flags = with_node_host(settings, flags, own_ip, node_ips(), may_be_local=may_be_local)
    return [config_from(settings, choice) for choice in port_choices(flags)]


def node_ips() -> set[str]:
    if not ray.is_initialized():
        return set()
    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def with_node_host(
    settings: type[Settings],
    flags: Flags,
    own_ip: str,
    ips: Collection[str],
    *,
    may_be_local: bool = False,
) -> Flags:
    """Return flags with this node's address as host, in a cluster of several nodes.

    Flags that name a host keep it, except a loopback address, which is refused.
    """
    if len(ips) < 2:
        return flags
    host = str(flags.get("host") or "")
    if host and is_loopback(host) and not may_be_local:
        raise InvalidRequest(
            f"The host is {host}, and the cluster has {len(ips)} machines, which cannot reach each other's "
            f"loopback addresses: leave `host` out, or write 0.0.0.0. The server {NEEDS}."
        )
    has_metrics = flags.get("metrics-port") is not None or "SPECWHISPER_METRICS_PORT" in os.environ
    hosts = ("host", "metrics-host") if has_metrics else ("host",)
    defaults = {name: own_ip for name in hosts if not flags.get(name)}
    if not defaults:
        return flags
    changed = flags | defaults
    try:
        config_from(settings, port_choices(changed)[0])
    except UnsafeBind as error:
        raise UnsafeBind(
            f"The cluster has {len(ips)} machines, which cannot reach each other's 127.0.0.1, and a server "
            f"that listens at {own_ip} {NEEDS}."
        ) from error
    return changed
