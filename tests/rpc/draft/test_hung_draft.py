"""While a draft engine hangs, sessions continue and begin without drafts."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from experiments.common.models.scripted import ScriptedModel, scripted_checkpoint, weights_in_memory
from specwhisper.engine import target_engine
from specwhisper.failpoints import Failpoint, Failpoints, Fault
from specwhisper.types import Limits
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.server import SERVICE_NAME as TRANSCRIPTION
from specwhisper_draft_server.transcriber import TargetDescription
from specwhisper_draft_server.whisper import place_and_warm_up
from tests.nightly import mostly_nightly
from tests.rpc.gated import Gated
from tests.rpc.health import NOT_SERVING, SERVING, until
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    PROMPTLY_S,
    Draft,
    all_free,
    check_statistics,
    check_text,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    target_alone,
    target_server,
    whole_request,
)

STEP_TIMEOUT_S = 0.2  # the engine's time limit
LENGTH_S = 65.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Yield an event that ends a hang; it is set at the end."""
    event = threading.Event()
    yield event
    event.set()


def hanging(gate: threading.Event, hit: int) -> Failpoints:
    """Return failpoints that make the draft engine hang in one of its steps."""
    return Failpoints({"draft.before": Failpoint(Fault.HANG, hit)}, hang=gate.wait)


def allow_long_steps(draft: Draft) -> None:
    """From now on a busy machine is not taken for a hang."""
    draft.service._drafting.watchdog._limit_s = PROMPTLY_S


def runs_target_only(response: pb.StreamingRecognizeResponse | pb.RecognizeResponse) -> bool:
    return response.model.mode == decoding_pb2.MODE_TARGET_ONLY and not response.model.draft


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("hit", mostly_nightly([2, 1, 9]))
async def test_a_session_whose_draft_hangs_continues_without_it(target, mode, hit, gate, caplog):
    async with draft_server(
        target.address, draft_timeout_s=STEP_TIMEOUT_S, failpoints=hanging(gate, hit)
    ) as draft:
        responses = await check_text(draft, LENGTH_S, mode=mode, gamma=3)
        check_statistics(responses[-1].statistics, target_alone(LENGTH_S))
        if mode != "MODE_FULL":  # there the target may finish before the hang is noticed
            assert any(map(runs_target_only, responses))
            assert responses[-1].statistics.draft_note == "the draft has failed"
            assert {"draft engine hangs", "draft failed"} <= set(caplog.messages)
        gate.set()
        await all_free(target, draft)


async def test_an_encoder_that_hangs_is_noticed_too(gate):
    model = Gated("encode")
    model.gate = gate
    async with target_server() as target:
        async with draft_server(target.address, model, draft_timeout_s=STEP_TIMEOUT_S) as draft:
            responses = await check_text(draft, LENGTH_S, mode="MODE_SYNC")
            assert any(map(runs_target_only, responses))
            gate.set()
            await all_free(target, draft)


async def test_sessions_during_a_hang_begin_without_a_draft_and_later_ones_with_it(
    target, gate, fast_health_checks
):
    """Health reports the hang to load balancers; the server itself still serves."""
    alone = target_alone(1.0)
    async with draft_server(
        target.address,
        draft_timeout_s=STEP_TIMEOUT_S,
        failpoints=hanging(gate, 1),
        reports_engine_health=True,
    ) as draft:
        await until(draft.address, SERVING, TRANSCRIPTION)
        whole = whole_request(recording(1.0), mode="MODE_SYNC")
        for _ in range(2):  # the first one makes it hang
            response = await draft.stub.Recognize(whole)
            assert finals([response]) == expected_finals(alone)
            assert runs_target_only(response)
        await until(draft.address, NOT_SERVING, TRANSCRIPTION)
        metrics = draft.service.metrics.collected
        assert value(collected(metrics), "specwhisper_draft_engine_hangs") == 1
        assert value(collected(metrics), "specwhisper_draft_failed_drafts_total") == 2
        gate.set()
        await until(draft.address, SERVING, TRANSCRIPTION)
        allow_long_steps(draft)
        response = await draft.stub.Recognize(whole)
        assert finals([response]) == expected_finals(alone)
        assert response.model.mode == decoding_pb2.MODE_SYNC and response.statistics.num_drafted
        assert value(collected(metrics), "specwhisper_draft_engine_hangs") == 0
        await all_free(target, draft)


class Placing:
    """Places a scripted draft, after some errors and a gate."""

    def __init__(self, gate: threading.Event, *errors: Exception) -> None:
        self._gate = gate
        self._errors = list(errors)
        self.num_begun = 0

    def __call__(self, _: object) -> ScriptedModel:
        self.num_begun += 1
        if self._errors:
            raise self._errors.pop(0)
        self._gate.wait()
        return ScriptedModel(MAX_SESSIONS)


@pytest.mark.parametrize(
    ("errors", "message"),
    [((), "draft engine hangs"), ((RuntimeError("no memory"),), "draft model not placed")],
)
async def test_a_draft_model_is_used_once_it_is_placed(target, gate, errors, message, monkeypatch, caplog):
    """No session waits for it, nor for another attempt."""
    monkeypatch.setattr("specwhisper_draft_server.drafting.RETRY_PLACE_S", 0.0)
    place = Placing(gate, *errors)
    async with draft_server(target.address, place=place, draft_timeout_s=STEP_TIMEOUT_S) as draft:
        for _ in range(2):  # the first one starts to place it
            responses = await check_text(draft, 1.0, mode="MODE_SYNC")
            assert any(map(runs_target_only, responses))
        assert value(collected(draft.service.metrics.collected), "specwhisper_draft_failed_drafts_total") == 2
        logged = [record for record in caplog.records if record.message == message]
        assert len(logged) == 1
        assert not errors or logged[0].exc_info[1] is errors[0]
        gate.set()
        drafting = draft.service._drafting
        await eventually(lambda: drafting.placement.drafter is not None and not drafting.watchdog.hangs)
        allow_long_steps(draft)
        responses = await check_text(draft, 1.0, mode="MODE_SYNC")
        assert not any(map(runs_target_only, responses))
        assert place.num_begun == 1 + len(errors)
        await all_free(target, draft)


def test_weights_are_kept_until_the_draft_model_is_placed(monkeypatch):
    class Cold(ScriptedModel):
        def warm_up(self) -> None:
            raise RuntimeError("no memory")

    monkeypatch.setattr("specwhisper_draft_server.whisper.open_draft", lambda *_, **__: Cold(1))
    checkpoint = scripted_checkpoint(weights=weights_in_memory({"weight": np.zeros(1)}))
    target = TargetDescription("target", "digest", checkpoint.vocabulary, checkpoint.num_mel_bins, Limits())
    with pytest.raises(RuntimeError, match="no memory"):
        place_and_warm_up(DraftConfig(), checkpoint, None, target)
    assert list(checkpoint.weights) == ["weight"], "needed to place it again"


async def test_a_target_whose_engine_hangs_loses_its_sessions_to_another_one(monkeypatch, emptiest_first):
    monkeypatch.setattr(target_engine, "HANGS_AFTER_S", STEP_TIMEOUT_S)
    model = Gated("score")
    async with (
        target_server(model) as hung,
        target_server(limits=Limits(max_sessions=MAX_SESSIONS - 1)) as spare,
        draft_server(f"{hung.address},{spare.address}", connect_timeout_s=0.5) as draft,
    ):
        await check_text(draft, LENGTH_S)
        assert model.is_there.is_set(), "the target with more room took it first"
        model.gate.set()
        await eventually(lambda: spare.num_free_slots == MAX_SESSIONS - 1)
        await all_free(hung, draft)
