"""A target with a long round trip takes sessions as a near one does."""

from __future__ import annotations

from experiments.common.servers.proxy import Proxy
from specwhisper.errors import TargetUnavailable
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.link import channels
from tests.rpc.services import (
    all_free,
    draft_server,
    error_of,
    expected_finals,
    finals,
    recording,
    stream,
    target_alone,
    target_server,
)

ONE_WAY_MS = 150
CONNECT_TIMEOUT_S = 0.1  # less than one round trip over the proxy


async def test_a_target_with_a_round_trip_over_the_connect_timeout_takes_sessions():
    async with target_server() as target, Proxy.listening() as proxy:
        proxy.upstream, proxy.latency_ms = target.address, ONE_WAY_MS
        async with draft_server(proxy.address, connect_timeout_s=CONNECT_TIMEOUT_S) as draft:
            assert finals(await stream(draft, recording(1.0))) == expected_finals(target_alone(1.0))
            await all_free(target, draft)


async def test_a_target_that_accepts_no_connection_is_lost(monkeypatch):
    monkeypatch.setattr(channels, "ATTEMPT_S", 0.2)
    async with target_server() as target, Proxy.listening() as proxy:
        proxy.upstream = target.address
        proxy.freeze()
        async with draft_server(proxy.address, connect_timeout_s=CONNECT_TIMEOUT_S) as draft:
            error = await error_of(draft.stub.GetModel(pb.GetModelRequest()))
        assert type(error) is TargetUnavailable
        assert str(error) == f"No target server answered at {proxy.address} within 0.2 s; is it running?"
