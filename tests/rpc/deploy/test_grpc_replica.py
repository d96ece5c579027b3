"""A replica waits for a port on which another drains, and raises other errors."""

import asyncio
import logging
import socket
from functools import partial

import pytest
import trustme

from specwhisper.errors import InvalidRequest, PortTaken
from specwhisper.rpc.serving import start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper_deploy.replicas import started
from tests.certificates import save
from tests.rpc.services import eventually

WAITS = "waits for its port"
LONG_S = 600.0  # a drain timeout; nothing here takes as long
start = partial(start_server, {})


async def test_a_replica_starts_once_its_port_is_free(caplog):
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as predecessor:
        port = predecessor.getsockname()[1]
        starting = asyncio.create_task(started(start, [ServingOptions(port=port, drain_timeout_s=LONG_S)]))
        await eventually(lambda: WAITS in caplog.messages)
        assert not starting.done()
    server = await starting
    assert server.address == f"127.0.0.1:{port}"
    await server.stop(drain_timeout_s=0)


async def test_a_replica_waits_no_longer_than_the_drain_timeout(monkeypatch):
    monkeypatch.setattr("specwhisper_deploy.replicas.PORT_MARGIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = ServingOptions(port=other.getsockname()[1], drain_timeout_s=0.0)
        with pytest.raises(PortTaken, match="the port is taken"):
            await started(start, [options])


@pytest.mark.parametrize("fault", ["no such address", "no certificate"])
async def test_other_errors_are_raised_at_once(tmp_path, fault, caplog):
    caplog.set_level(logging.INFO)
    options = ServingOptions(
        host="192.0.2.1" if fault == "no such address" else "127.0.0.1",
        tls=save(trustme.CA(), tmp_path, "server"),
        insecure=True,
        drain_timeout_s=LONG_S,
    )
    if fault == "no certificate":  # after the flags were checked
        (tmp_path / "server.pem").unlink()
    with pytest.raises(InvalidRequest, match=r"Cannot listen on 192\.0\.2\.1|cannot be read") as refused:
        await started(start, [options])
    assert type(refused.value) is InvalidRequest
    assert WAITS not in caplog.messages


async def test_the_first_free_port_of_several_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        choices = [ServingOptions(port=other.getsockname()[1]), ServingOptions(port=0)]
        server = await started(start, choices)
        await server.stop(drain_timeout_s=0)
