"""In a cluster, replicas listen where other nodes reach them, or refuse with the reason."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper_deploy import nodes
from specwhisper_deploy.nodes import configs_on_this_node, with_node_host
from specwhisper_draft_server.command import read_config as read_draft
from specwhisper_gateway.command import read_config as read_gateway
from specwhisper_target_server.command import read_config as read_target

OWN, OTHER = "192.0.2.1", "192.0.2.2"
ALL = (read_target, read_draft, read_gateway)


@pytest.fixture
def machines(monkeypatch):
    """A cluster of two nodes."""
    monkeypatch.setattr(nodes, "node_ips", lambda: {OWN, OTHER})
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: OWN)


@pytest.mark.parametrize("ips", [[], [OWN]])
@pytest.mark.parametrize("flags", [{}, {"host": "127.0.0.1"}, {"host": "0.0.0.0"}])
def test_on_one_node_flags_stay_as_they_are(ips, flags):
    assert with_node_host(read_target, flags, OWN, ips) == flags


@pytest.mark.parametrize("read", ALL)
def test_the_default_host_is_the_nodes_own(machines, read):
    (config,) = configs_on_this_node(read, {"insecure": True, "port": 0})
    serving = getattr(config, "serving", config)
    assert (serving.host, serving.metrics_host) == (OWN, OWN)


@pytest.mark.parametrize("read", ALL)
def test_a_server_without_encryption_and_tokens_is_refused_with_what_it_needs(machines, read):
    with pytest.raises(UnsafeBind, match=f"2 machines, .* at {OWN} needs encryption and tokens"):
        configs_on_this_node(read, {"port": "8000-8003"})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_loopback_host_is_refused(machines, host):
    with pytest.raises(InvalidRequest, match=f"host is {host}, and the cluster has 2 machines"):
        configs_on_this_node(read_target, {"host": host, "insecure": True})


def test_a_gateway_may_listen_on_loopback_only(machines):
    flags = {"host": "127.0.0.1", "metrics-host": "127.0.0.1"}
    (config,) = configs_on_this_node(read_gateway, flags, may_be_local=True)
    assert (config.host, config.metrics_host) == ("127.0.0.1", "127.0.0.1")


def test_an_explicit_host_stays(machines):
    (config,) = configs_on_this_node(read_draft, {"host": "0.0.0.0", "insecure": True})
    assert config.serving.host == "0.0.0.0"


def test_a_range_gives_a_configuration_for_each_port(machines):
    configs = configs_on_this_node(read_draft, {"insecure": True, "port": "50051-50053"})
    assert [config.serving.port for config in configs] == [50051, 50052, 50053]


def test_without_ray_there_are_no_other_nodes():
    assert nodes.node_ips() == set()
