"""Hosts of replicas in a cluster of several nodes.

The nodes cannot reach each other's 127.0.0.1.
"""

from __future__ import annotations

from collections.abc import Collection

import ray
import ray.util

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.addresses import is_loopback
from specwhisper.settings.command_line import config_from
from specwhisper.settings.setting import Config, Settings
from specwhisper_deploy.ports import Flags, port_choices

HOST_FLAGS = ("host", "metrics-host")
NEEDS = "needs encryption and tokens, or `insecure: true` in a network where every client may use it"


def configs_on_this_node(settings: type[Config], flags: Flags, *, may_be_local: bool = False) -> list[Config]:
    """Return a replica's configurations, with a host for this node.

    There is one for each port that the replica may take.

    Parameters
    ----------
    settings : the settings class of a server.
    may_be_local : whether ``host: 127.0.0.1`` is accepted on several nodes.
    """
    own_ip = ray.util.get_node_ip_address()
    flags = with_node_host(settings, flags, own_ip, node_ips(), may_be_local=may_be_local)
    return [config_from(settings, choice) for choice in port_choices(flags)]


def node_ips() -> set[str]:
    """Return the addresses of the cluster's nodes, none without a cluster."""
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

    Flags that name a host keep it.

    Raises
    ------
    InvalidRequest
        where the host is a loopback address, which on each node is the node itself.
    UnsafeBind
        where the server lacks what it needs to listen on a network.
    """
    if len(ips) < 2:
        return flags
    host = str(flags.get("host") or "")
    if host and is_loopback(host) and not may_be_local:
        raise InvalidRequest(
            f"The host is {host}, and the cluster has {len(ips)} machines, which cannot reach each other's "
            f"loopback addresses: leave `host` out, or write 0.0.0.0. The server {NEEDS}."
        )
    defaults = {name: own_ip for name in HOST_FLAGS if not flags.get(name)}
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
