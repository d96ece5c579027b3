"""Hosts of replicas on a cluster of several machines, which do not reach each other's 127.0.0.1."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

import ray
import ray.util

from specwhisper.cli.command_lines import config_from
from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.addresses import is_loopback
from specwhisper_deploy.ports import Flags, port_choices

HOST_FLAGS = ("host", "metrics-host")
SAFE_HOSTS = "encryption and tokens, or `insecure: true` in a network where everybody may use it"

Config = TypeVar("Config")


def configs_on_this_node(
    read: Callable[..., Config], flags: Flags, *, may_be_local: bool = False
) -> list[Config]:
    """Read a replica's flags, once for each port that it may take, with a host that other nodes reach.

    Parameters
    ----------
    read : a server's command line.
    may_be_local : whether ``host: 127.0.0.1`` is right on several machines, where it is given.
    """
    own_ip = ray.util.get_node_ip_address()
    flags = reachable_flags(read, flags, own_ip, node_ips(), may_be_local=may_be_local)
    return [config_from(read, choice) for choice in port_choices(flags)]


def node_ips() -> set[str]:
    """Return the addresses of the cluster's machines; none where this process is not part of a cluster."""
    if not ray.is_initialized():
        return set()
    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def reachable_flags(
    read: Callable[..., object],
    flags: Flags,
    own_ip: str,
    ips: Collection[str],
    *,
    may_be_local: bool = False,
) -> Flags:
    """Return flags with this node's address as the host where none is given and there are other machines.

    Raises
    ------
    InvalidRequest
        where the host given is this machine's alone, so that other nodes would be sent to themselves.
    UnsafeBind
        where the server is not fit for a network.
    """
    if len(ips) < 2:
        return flags
    host = str(flags.get("host") or "")
    if host and is_loopback(host) and not may_be_local:
        raise InvalidRequest(
            f"The host is {host}, and the cluster has {len(ips)} machines, which do not reach each other's: "
            f"leave `host` out, or write 0.0.0.0; the server needs {SAFE_HOSTS}."
        )
    given = {name: own_ip for name in HOST_FLAGS if not flags.get(name)}
    if not given:
        return flags
    changed = flags | given
    try:
        config_from(read, port_choices(changed)[0])
    except UnsafeBind as error:
        raise UnsafeBind(
            f"The cluster has {len(ips)} machines, which do not reach each other's 127.0.0.1, and a server "
            f"that listens at {own_ip} needs {SAFE_HOSTS}."
        ) from error
    return changed
