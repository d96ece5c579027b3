"""Each replica on a node takes one port of a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper_deploy.ports import port_choices


@pytest.mark.parametrize("flags", [{}, {"port": 50051}, {"port": "50051"}, {"port": 0, "metrics-port": None}])
def test_without_a_range_there_is_one_choice(flags):
    assert port_choices({"host": "a"} | flags) == [{"host": "a"} | flags]


@given(st.integers(1, 60_000), st.integers(0, 20))
def test_a_range_has_a_choice_for_each_port(first, more):
    choices = port_choices({"port": f"{first}-{first + more}", "metrics-port": 0})
    assert choices == [{"port": port, "metrics-port": 0} for port in range(first, first + more + 1)]


def test_two_ranges_are_paired():
    choices = port_choices({"port": "50051-50052", "metrics-port": "9465-9466"})
    assert choices == [{"port": 50051, "metrics-port": 9465}, {"port": 50052, "metrics-port": 9466}]


@pytest.mark.parametrize("port", ["50052-50051", "0-3", "65535-65536", "50051-", "many", "-1", "1-2-3"])
def test_a_malformed_range_is_refused(port):
    with pytest.raises(InvalidRequest, match=f"port is '{port}': write a port"):
        port_choices({"port": port})


@pytest.mark.parametrize("other", [9465, "9465", "9465-9467"])
def test_a_port_that_replicas_would_have_to_share_is_refused(other):
    with pytest.raises(InvalidRequest, match=f"equal length, or 0 .*metrics-port: {other}"):
        port_choices({"port": "50051-50052", "metrics-port": other})
