"""A target with leases takes only sessions with one; draft servers send theirs."""

from __future__ import annotations

from specwhisper.errors import LeaseRefused
from specwhisper.rpc.leases import Leases
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.hostile import hello, session
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


class Stopped:
    """A clock that tests set."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


async def test_a_session_needs_a_lease_of_this_target():
    clock = Stopped()
    async with target_server(leases=Leases(clock=clock)) as target, target_server(leases=Leases()) as other:
        theirs = (await other.stub.Locate(pb.LocateRequest())).lease
        for lease in ("", "1.00", theirs):
            error = await error_of(target.stub.Verify(iter([hello(lease=lease)])))
            assert type(error) is LeaseRefused
        lease = (await target.stub.Locate(pb.LocateRequest())).lease
        async with session(target, hello(lease=lease)) as leased:
            await leased.read_until("welcome")
        clock.now_s = 61.0
        error = await error_of(target.stub.Verify(iter([hello(lease=lease)])))
        assert "valid for 60 s" in str(error)
        await all_free(target)


async def test_a_draft_server_sends_its_lease():
    async with target_server(leases=Leases()) as target, draft_server(target.address) as draft:
        responses = await stream(draft, recording(40.0))
        assert finals(responses) == expected_finals(target_alone(40.0))
        await all_free(target, draft)
