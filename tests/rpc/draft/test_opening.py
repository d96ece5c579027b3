"""A session opens in one round trip on a described target, and on none of another protocol."""

from collections import Counter
from contextlib import AsyncExitStack

import pytest

import specwhisper_draft_server.link.link
import specwhisper_target_server.service
from experiments.common.models.scripted import ScriptedModel
from specwhisper import __version__
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.rpc.tokens import Leases
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_target_server.service import VerificationService
from tests.rpc.network import BadNetwork
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    Target,
    all_free,
    as_target,
    audio_requests,
    check_text,
    draft_server,
    error_of,
    is_one_sentence,
    recording,
    refusal,
    running_pair,
    scripted_checkpoint,
    streaming_config,
    target_server,
    whole_request,
)

ONE_SECOND = (streaming_config(), *audio_requests(recording(1.0)))


@pytest.fixture
def asked(monkeypatch) -> Counter[str]:
    """Count the calls of targets by method."""
    counted: Counter[str] = Counter()
    for name in ("Describe", "Locate"):
        answer = getattr(VerificationService, name)

        async def counting(self, request, context, name=name, answer=answer):
            counted[name] += 1
            return await answer(self, request, context)

        monkeypatch.setattr(VerificationService, name, counting)
    return counted


@pytest.mark.parametrize(
    ("num_targets", "leases", "num_located"),
    [(1, None, 1), (2, None, 6), (1, Leases(), 3)],
    ids=["one target", "several", "one with leases"],
)
async def test_a_described_target_is_not_described_again(asked, num_targets, leases, num_located):
    """Each session looks for room among several targets, and for a lease."""
    async with AsyncExitStack() as stack:
        opening = (target_server(leases=leases) for _ in range(num_targets))
        targets = [await stack.enter_async_context(each) for each in opening]
        draft = await stack.enter_async_context(draft_server(",".join(each.address for each in targets)))
        await check_text(draft)
        described = asked["Describe"]
        for _ in range(2):
            await check_text(draft)
        assert asked == {"Describe": described, "Locate": num_located}


async def test_get_model_is_answered_by_the_target(asked, target):
    async with draft_server(target.address, connect_timeout_s=0.5) as draft:
        await check_text(draft)
        await draft.stub.GetModel(pb.GetModelRequest())
        assert asked["Describe"] == 2
        await target.server.stop(drain_timeout_s=0)
        error = await error_of(draft.stub.GetModel(pb.GetModelRequest()))
        assert type(error) is TargetUnavailable


async def test_a_target_that_returns_with_other_weights_is_described_again(unused_tcp_port, asked):
    async with draft_server(f"127.0.0.1:{unused_tcp_port}") as draft:
        for digest in ("one", "another"):
            checkpoint = scripted_checkpoint(weights_digest=digest)
            model = ScriptedModel(MAX_SESSIONS)
            async with target_server(model, checkpoint, port=unused_tcp_port) as target:
                responses = await check_text(draft, 1.0)
                assert responses[0].model.target_weights_digest == digest
                await all_free(target, draft)
        assert asked["Describe"] == 2


class Moving(BadNetwork):
    """A network that switches targets without losing a connection."""

    def __init__(self, target: Target) -> None:
        self._edit_block = lambda: lambda block: (block,)
        self.lead_to(target)

    def lead_to(self, target: Target) -> None:
        self._stub = target.stub


async def test_an_outdated_description_is_corrected_by_the_first_welcome(asked):
    """If there is a proxy, a target may be replaced without a lost connection."""
    async with (
        target_server(ScriptedModel(MAX_SESSIONS), scripted_checkpoint(weights_digest="one")) as one,
        target_server(ScriptedModel(MAX_SESSIONS), scripted_checkpoint(weights_digest="other")) as other,
    ):
        moving = Moving(one)
        async with as_target(moving) as server, draft_server(server.address) as draft:
            await check_text(draft)
            moving.lead_to(other)
            responses = await check_text(draft)
            assert responses[0].model.target_weights_digest == "other"
            assert asked["Describe"] == 2
            await check_text(draft)
            assert asked["Describe"] == 2


def audio_received_s(target: Target) -> float:
    return value(collected(target.service.metrics.collected), "specwhisper_target_audio_seconds_total")


@pytest.mark.parametrize(
    ("other", "version"), [("target", PROTOCOL_VERSION - 1), ("draft server", PROTOCOL_VERSION + 1)]
)
async def test_a_draft_server_refuses_targets_of_another_protocol(other, version, monkeypatch):
    changed = specwhisper_target_server.service if other == "target" else specwhisper_draft_server.link.link
    monkeypatch.setattr(changed, "PROTOCOL_VERSION", version)
    versions = (version, PROTOCOL_VERSION)
    of_target, of_draft = versions if other == "target" else versions[::-1]
    whole = whole_request(recording(1.0))
    async with running_pair() as (target, draft):
        for error in (await error_of(draft.stub.Recognize(whole)), await refusal(draft, *ONE_SECOND)):
            assert type(error) is PairMismatch
            assert is_one_sentence(error)
            assert (
                f"Target {target.address} (specwhisper {__version__}) speaks protocol {of_target}, this "
                f"draft server (specwhisper {__version__}) speaks {of_draft}"
            ) in str(error)
        assert audio_received_s(target) == 0
        await all_free(target, draft)
