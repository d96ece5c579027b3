"""Descriptions of the target for sessions that open, also in an outage."""

import grpc
import grpc.aio
import pytest

from experiments.common.models.speech import SPOKEN
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.types import Limits
from specwhisper.wire.status import error_from_rpc
from specwhisper_draft_server.service import described
from specwhisper_draft_server.transcriber import ANY, Requirements, TargetDescription

pytestmark = pytest.mark.usefixtures("short_delays")

OLD, NEW = (TargetDescription("model", weights, SPOKEN, 80, Limits()) for weights in ("old", "new"))
ABSENT = TargetUnavailable("No target server answered.")


def connection_lost(
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, details: str = "Socket closed"
) -> TargetUnavailable:
    """Return the error of a call whose connection breaks, or that ends with ``code``."""
    rpc_error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
    return error_from_rpc(rpc_error, "a:1")


class Targets:
    """Targets that return one answer per call, and then always the last one."""

    def __init__(
        self, *answers: TargetDescription | Exception, known: TargetDescription | None = None
    ) -> None:
        self._answers = list(answers)
        self._known = known
        self.calls: list[Requirements] = []

    def known(
        self, requirements: Requirements = ANY, *, in_outages: bool = False
    ) -> TargetDescription | None:
        known = OLD if in_outages else self._known
        return known if known is not None and requirements.are_met_by(known) else None

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        self.calls.append(requirements)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_known_description_is_not_requested_again():
    targets = Targets(NEW, known=OLD)
    assert await described(targets, ANY, 10.0) is OLD
    assert await described(targets, Requirements(weights_digest="new"), 10.0) is NEW
    assert targets.calls == [Requirements(weights_digest="new")]


@pytest.mark.parametrize(
    "error",
    [connection_lost(), connection_lost(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")],
    ids=["its connection breaks", "it reaches its deadline"],
)
async def test_a_request_is_repeated_if(error):
    targets = Targets(error, error, error, NEW)
    assert await described(targets, ANY, 10.0) is NEW
    assert len(targets.calls) == 4
    with pytest.raises(TargetUnavailable) as raised:
        await described(Targets(error), ANY, 0.0)
    assert raised.value is error


NEVER_CONNECTED = connection_lost(details="failed to connect to all addresses; last error: refused")


@pytest.mark.parametrize("error", [ABSENT, NEVER_CONNECTED, PairMismatch("Another vocabulary.")])
async def test_a_target_that_never_answered_or_does_not_match_is_reported_at_once(error):
    targets = Targets(error)
    with pytest.raises(type(error)) as raised:
        await described(targets, ANY, 10.0)
    assert raised.value is error and len(targets.calls) == 1


@pytest.mark.parametrize("error", [ABSENT, connection_lost()])
async def test_in_an_outage_the_last_description_is_returned_without_waiting(error):
    targets = Targets(error)
    assert await described(targets, Requirements(SPOKEN.digest, "old"), 10.0, in_outages=True) is OLD
    assert len(targets.calls) == 1
    with pytest.raises(TargetUnavailable):
        await described(targets, Requirements(weights_digest="new"), 0.0, in_outages=True)
