"""What a session learns of its target before it opens, also while that is lost."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
import grpc.aio
import pytest

from experiments.common.models.speech import SPOKEN
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.rpc import failover
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import Limits
from specwhisper.wire.status import error_from_rpc
from specwhisper_draft_server.link.descriptions import Descriptions
from specwhisper_draft_server.link.needs import ANY, Needs

OLD, NEW = (TargetDescription("model", weights, SPOKEN, 80, Limits()) for weights in ("old", "new"))
ABSENT = TargetUnavailable("No target server answered.")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(failover, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(failover, "MAX_DELAY_S", 0.001)


def lost(
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, details: str = "Socket closed"
) -> TargetUnavailable:
    """What a call ends with whose connection breaks, or that ends otherwise."""
    rpc_error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
    error = error_from_rpc(rpc_error, "a:1")
    error.__cause__ = rpc_error
    return error


class World:
    """What targets answer, one time after the other; the last for ever."""

    def __init__(
        self, *answers: TargetDescription | Exception, known: TargetDescription | None = None
    ) -> None:
        self._answers = list(answers)
        self._known = known
        self.asked: list[Needs] = []

    def known(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription | None:
        needs = Needs(vocabulary_digest, weights_digest, unusable)
        return self._known if self._known is not None and needs.are_met_by(self._known) else None

    async def describe(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription:
        self.asked.append(Needs(vocabulary_digest, weights_digest, unusable))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_what_is_known_is_not_asked():
    world = World(NEW, known=OLD)
    descriptions = Descriptions(world, 10.0)
    assert await descriptions.for_session(ANY) is OLD
    assert await descriptions.for_session(Needs(weights_digest="new")) is NEW
    assert world.asked == [Needs(weights_digest="new")]


async def test_a_target_that_is_lost_while_it_is_asked_is_asked_again():
    world = World(lost(), lost(), lost(), NEW)
    assert await Descriptions(world, 10.0).for_session(ANY) is NEW
    assert len(world.asked) == 4


async def test_a_target_that_hangs_when_it_is_first_asked_is_asked_again():
    hung = lost(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    world = World(hung, NEW)
    assert await Descriptions(world, 10.0).for_session(ANY) is NEW
    assert len(world.asked) == 2


NEVER_CONNECTED = lost(details="failed to connect to all addresses; last error: refused")


@pytest.mark.parametrize("error", [ABSENT, NEVER_CONNECTED, PairMismatch("Another vocabulary.")])
async def test_one_that_never_answered_or_does_not_match_is_said_at_once(error):
    world = World(error)
    with pytest.raises(type(error)) as raised:
        await Descriptions(world, 10.0).for_session(ANY)
    assert raised.value is error and len(world.asked) == 1


async def test_patience_has_an_end():
    with pytest.raises(TargetUnavailable, match="was lost"):
        await Descriptions(World(lost()), 0.0).for_session(ANY)


@pytest.mark.parametrize("error", [ABSENT, lost()])
async def test_in_an_outage_the_last_target_is_described_without_waiting(error):
    world = World(OLD, error)
    descriptions = Descriptions(world, 10.0)
    assert await descriptions.in_outages(ANY) == (OLD, None)
    assert await descriptions.in_outages(Needs(SPOKEN.digest, "old")) == (OLD, error)
    assert len(world.asked) == 2
    with pytest.raises(TargetUnavailable):
        await Descriptions(world, 0.0).in_outages(ANY)


async def test_in_an_outage_the_last_target_does_not_stand_for_one_of_other_weights():
    descriptions = Descriptions(World(OLD, ABSENT), 10.0)
    await descriptions.ask()
    with pytest.raises(TargetUnavailable):
        await descriptions.in_outages(Needs(weights_digest="new"))
