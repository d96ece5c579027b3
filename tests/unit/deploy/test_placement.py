"""Replicas listen at their node's address, each on one port of a range, or refuse to start."""

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper_deploy import placement
from specwhisper_deploy.placement import configs_on_this_node, port_choices, with_node_host
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig

OWN, OTHER = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def machines(monkeypatch):
    """Fake a cluster of two nodes."""
    monkeypatch.setattr(placement, "node_ips", lambda: {OWN, OTHER})
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: OWN)


@pytest.mark.parametrize("ips", [[], [OWN]])
@pytest.mark.parametrize("flags", [{}, {"host": "127.0.0.1"}, {"host": "0.0.0.0"}])
def test_on_one_node_flags_stay_unchanged(ips, flags):
    assert with_node_host(TargetConfig, flags, OWN, ips) == flags


LOCAL = {"host": "127.0.0.1", "metrics-host": "127.0.0.1"}


@pytest.mark.parametrize(
    ("settings", "flags", "hosts"),
    [
        *(
            (settings, {"insecure": True}, (OWN, OWN))
            for settings in (TargetConfig, DraftConfig, GatewayConfig)
        ),
        (DraftConfig, {"host": "0.0.0.0", "insecure": True}, ("0.0.0.0", OWN)),
        (GatewayConfig, LOCAL, ("127.0.0.1", "127.0.0.1")),
    ],
)
def test_the_default_host_is_the_nodes_own(machines, settings, flags, hosts):
    flags = flags | {"port": "50051-50052", "metrics-port": 0}
    configs = configs_on_this_node(settings, flags, may_be_local=settings is GatewayConfig)
    assert [(each.host, each.metrics_host) for each in configs] == [hosts] * 2
    assert [config.port for config in configs] == [50051, 50052]


def test_metrics_get_no_host_without_a_port(machines, monkeypatch):
    monkeypatch.delenv("SPECWHISPER_METRICS_PORT", raising=False)
    (config,) = configs_on_this_node(TargetConfig, {"insecure": True})
    assert (config.host, config.metrics_host) == (OWN, "127.0.0.1")
    monkeypatch.setenv("SPECWHISPER_METRICS_PORT", "9464")
    (config,) = configs_on_this_node(TargetConfig, {"insecure": True})
    assert config.metrics_host == OWN


def test_without_ray_there_are_no_other_nodes(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # tests of clusters may share this process
    assert placement.node_ips() == set()


@pytest.mark.parametrize("flags", [{}, {"port": 50051}, {"port": "50051"}, {"port": 0, "metrics-port": None}])
def test_without_a_range_there_is_one_choice(flags):
    assert port_choices({"host": "a"} | flags) == [{"host": "a"} | flags]


@pytest.mark.parametrize(
    ("flags", "choices"),
    [
        ({"port": "7-7", "metrics-port": 0}, [(7, 0)]),
        ({"port": "50051-50053", "metrics-port": 0}, [(50051, 0), (50052, 0), (50053, 0)]),
        ({"port": "50051-50052", "metrics-port": "9465-9466"}, [(50051, 9465), (50052, 9466)]),
    ],
)
def test_a_range_has_a_choice_for_each_port(flags, choices):
    assert port_choices(flags) == [{"port": port, "metrics-port": metrics} for port, metrics in choices]


@pytest.mark.parametrize("port", ["50052-50051", "0-3", "65535-65536", "50051-", "-1", "1-2-3"])
def test_a_malformed_range_is_refused(port):
    with pytest.raises(InvalidRequest, match=f"port is '{port}': write a port"):
        port_choices({"port": port})


@pytest.mark.parametrize("other", [9465, "9465", "9465-9467"])
def test_a_port_that_replicas_would_have_to_share_is_refused(other):
    with pytest.raises(InvalidRequest, match=f"equal length, or 0 .*metrics-port: {other}"):
        port_choices({"port": "50051-50052", "metrics-port": other})
