"""The parity audit: what was written with drafts is what the target writes alone, or somebody hears of it."""

from __future__ import annotations

import logging

import pytest

from experiments.common.scripted import ScriptedModel
from experiments.common.speaking import Ear, talk
from specwhisper.types import Limits
from specwhisper_draft_server import parity_check as audit
from specwhisper_draft_server.parity_check import first_difference
from tests.rpc.network import cut_network
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    Draft,
    all_free,
    draft_server,
    eventually,
    expected_finals,
    finals,
    recording,
    stream,
    streaming_config,
    target_alone,
    target_server,
)
from tests.rpc.speaking import listen, speaking_draft, speaking_target

LENGTH_S = 70.0
NAMES = ("audited_sessions", "audit_differences")


class Wavering(ScriptedModel):
    """A target that writes something else behind so many windows: a wrong kernel, or a broken cache."""

    def __init__(self, good_windows: int) -> None:
        super().__init__(MAX_SESSIONS)
        self._good_windows = good_windows

    def encode(self, slot, recording, start_frame):
        self._good_windows -= 1
        super().encode(slot, recording, start_frame)

    def next_token(self, audio, prefix, sampling=None):
        token = super().next_token(audio, prefix, sampling)
        is_wrong = self._good_windows < 0 and len(prefix) == 6 and token < 20
        return token + 1 if is_wrong else token


def counted(draft: Draft) -> tuple[int, int]:
    """How many were audited, and how many differed."""
    samples = collected(draft.service.metrics.collected)
    audited, differences = (value(samples, f"specwhisper_draft_{name}_total") for name in NAMES)
    return int(audited), int(differences)


def skipped(draft: Draft, reason: str) -> float:
    name = "specwhisper_draft_audits_skipped_total"
    return collected(draft.service.metrics.collected).get((name, (("reason", reason),)), 0)


async def test_one_in_n_is_decoded_again_and_is_the_same(caplog):
    caplog.set_level(logging.INFO)
    async with target_server() as target, draft_server(target.address, audit_every=2) as draft:
        for mode in ("MODE_SYNC", "MODE_PIPELINED", "MODE_FULL", "MODE_TARGET_ONLY", "MODE_FULL"):
            responses = await stream(draft, recording(LENGTH_S), mode=mode)
            assert finals(responses) == expected_finals(target_alone(LENGTH_S))
        await eventually(lambda: counted(draft) == (2, 0))
        await all_free(target, draft)
    opened = {
        r.session
        for r in caplog.records
        if r.message == "session opened" and r.name == "specwhisper_draft_server.sessions.session"
    }
    audited = {record.session for record in caplog.records if record.message == "audited"}
    assert len(audited) == 2
    assert audited < opened


async def test_an_audit_survives_a_lost_target(monkeypatch):
    monkeypatch.setattr("specwhisper.rpc.backoff.MOST_S", 0.02)
    async with (
        target_server() as target,
        cut_network(target.address, [1, 7, 3, 0, 5]) as (network, cutting),
        draft_server(network.address, audit_every=1) as draft,
    ):
        await stream(draft, recording(LENGTH_S))
        await eventually(lambda: counted(draft) == (1, 0))
    assert cutting.num_cut == 5


async def test_a_target_that_writes_something_else_alone_is_found_out(caplog):
    caplog.set_level(logging.INFO)
    alone = target_alone(LENGTH_S)
    model = Wavering(len(alone.window_tokens))
    async with target_server(model) as target, draft_server(target.address, audit_every=1) as draft:
        responses = await stream(draft, recording(LENGTH_S))
        assert finals(responses) == expected_finals(alone), "the client hears nothing of it"
        await eventually(lambda: counted(draft) == (1, 1))
    (record,) = [record for record in caplog.records if record.message == "transcript differs"]
    (client, *_) = [record for record in caplog.records if record.message == "session opened"]
    assert (record.levelname, record.session) == ("ERROR", getattr(client, "draft_session", client.session))
    assert record.written == alone.window_tokens[record.window][record.position]
    assert record.target_only == record.written + 1


async def test_an_audit_gives_way_where_the_target_is_full():
    async with (
        target_server(limits=Limits(max_sessions=1)) as target,
        draft_server(target.address, audit_every=1) as draft,
    ):
        await stream(draft, recording(LENGTH_S))
        await eventually(lambda: skipped(draft, "full") == 1)
        await eventually(lambda: target.num_free_slots == 1)
        assert counted(draft) == (0, 0)
        responses = await stream(draft, recording(LENGTH_S))
        assert finals(responses) == expected_finals(target_alone(LENGTH_S))


async def test_what_waits_for_its_audit_is_bounded(monkeypatch):
    monkeypatch.setattr(audit, "MAX_SPOOLED_BYTES", len(recording(2.0)))
    async with target_server() as target, draft_server(target.address, audit_every=1) as draft:
        responses = await stream(draft, recording(2.1))
        assert finals(responses) == expected_finals(target_alone(2.1))
        assert skipped(draft, "size") == 1
        await stream(draft, recording(1.9))
        await eventually(lambda: counted(draft) == (1, 0))
        auditor = draft.service._auditor
        await eventually(lambda: auditor._num_spooled_bytes == 0)


async def test_a_client_that_leaves_leaves_nothing_to_audit():
    async with target_server() as target, draft_server(target.address, audit_every=1) as draft:
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config())
        await call.read()
        call.cancel()
        await all_free(target, draft)
        assert draft.service._auditor._num_spooled_bytes == 0
        assert draft.service._auditor._auditing is None


async def test_live_audio_is_not_audited(monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", Ear)
    async with speaking_target() as target, speaking_draft(target.address, audit_every=1) as draft:
        await listen(draft, talk())
        assert draft.service._auditor._auditing is None


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ([(1, 2), (3,)], [(1, 2), (3,)], None),
        ([(1, 2), (3,)], [(1, 2), (4,)], (1, 0)),
        ([(1, 2)], [(1, 2, 3)], (0, 2)),
        ([(1, 2), (3,)], [(1, 2)], (1, 0)),
        ([], [(1,)], (0, 0)),
        ([], [], None),
    ],
)
def test_the_first_difference_is_told(one, other, difference):
    assert first_difference(one, other) == difference
