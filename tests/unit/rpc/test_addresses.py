"""Addresses are parsed or refused; an unprotected server needs ``insecure``."""

import pytest

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.addresses import check_bind, is_loopback, join_address, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:50051", ("127.0.0.1", 50_051)),
        ("target.example:1", ("target.example", 1)),
        ("[::1]:65535", ("::1", 65_535)),
    ],
)
def test_addresses_split_and_join(address, parts):
    assert split_address(address) == parts
    assert join_address(*parts) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":1",
        "localhost",
        "localhost:0",
        "localhost:65536",
        "::1:50051",
        "[localhost]:1",
        "http://localhost:1",
        "localhost:²",
    ],
)
def test_anything_else_is_refused(address):
    with pytest.raises(InvalidRequest, match="a host, a colon and a port"):
        split_address(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_may_be_bound(host):
    assert is_loopback(host)
    check_bind(host, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.example.org", ""])
def test_hosts_that_others_can_reach_need_insecure(host):
    check_bind(host, insecure=True)
    with pytest.raises(UnsafeBind, match="--insecure"):
        check_bind(host, insecure=False)
