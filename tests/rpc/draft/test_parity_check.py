"""The parity check reports a text that differs from that of target-only."""

import logging

import pytest

from experiments.common.models.scripted import ScriptedModel
from experiments.common.models.speech import talk
from specwhisper.types import Limits
from specwhisper_draft_server import parity_check
from specwhisper_draft_server.parity_check import first_difference
from tests.rpc.scrapes import collected, value
from tests.rpc.services import (
    MAX_SESSIONS,
    Draft,
    all_free,
    check_text,
    draft_server,
    eventually,
    recording,
    stream,
    streaming_config,
    target_alone,
    target_server,
)
from tests.rpc.speaking import listen, speaking_draft, speaking_target

LENGTH_S = 70.0
NAMES = ("parity_checks", "parity_differences")


class Inconsistent(ScriptedModel):
    """A target that writes other tokens after some windows, as with a broken cache."""

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
    """Return the number of recordings that were checked, and that differed."""
    samples = collected(draft.service.metrics.collected)
    checked, differences = (value(samples, f"specwhisper_draft_{name}_total") for name in NAMES)
    return int(checked), int(differences)


def skipped(draft: Draft, reason: str) -> float:
    name = "specwhisper_draft_parity_checks_skipped_total"
    return collected(draft.service.metrics.collected).get((name, (("reason", reason),)), 0)


async def test_one_recording_in_n_is_decoded_again_with_the_same_text(caplog):
    caplog.set_level(logging.INFO)
    async with target_server() as target, draft_server(target.address, parity_check_every=2) as draft:
        for mode in ("MODE_SYNC", "MODE_PIPELINED", "MODE_FULL", "MODE_TARGET_ONLY", "MODE_FULL"):
            await check_text(draft, LENGTH_S, mode=mode)
        await eventually(lambda: counted(draft) == (2, 0))
        await all_free(target, draft)
    opened = {
        r.session
        for r in caplog.records
        if r.message == "session opened" and r.name == "specwhisper_draft_server.session"
    }
    checked = {record.session for record in caplog.records if record.message == "parity checked"}
    assert len(checked) == 2
    assert checked < opened


async def test_a_different_text_is_reported(caplog):
    caplog.set_level(logging.INFO)
    alone = target_alone(LENGTH_S)
    model = Inconsistent(len(alone.window_tokens))
    async with target_server(model) as target, draft_server(target.address, parity_check_every=1) as draft:
        await check_text(draft, LENGTH_S)  # the client does not notice
        await eventually(lambda: counted(draft) == (1, 1))
    (record,) = [record for record in caplog.records if record.message == "transcript differs"]
    (client, *_) = [record for record in caplog.records if record.message == "session opened"]
    assert (record.levelname, record.session) == ("ERROR", getattr(client, "draft_session", client.session))
    assert record.written == alone.window_tokens[record.window][record.position]
    assert record.target_only == record.written + 1


async def test_a_check_is_skipped_if_the_target_is_full():
    async with (
        target_server(limits=Limits(max_sessions=1)) as target,
        draft_server(target.address, parity_check_every=1) as draft,
    ):
        await stream(draft, recording(LENGTH_S))
        await eventually(lambda: skipped(draft, "full") == 1)
        await eventually(lambda: target.num_free_slots == 1)
        assert counted(draft) == (0, 0)
        await check_text(draft, LENGTH_S)


async def test_the_audio_that_is_kept_for_checks_is_bounded(monkeypatch):
    monkeypatch.setattr(parity_check, "MAX_KEPT_BYTES", len(recording(2.0)))
    async with target_server() as target, draft_server(target.address, parity_check_every=1) as draft:
        await check_text(draft, 2.1)
        assert skipped(draft, "size") == 1
        await stream(draft, recording(1.9))
        await eventually(lambda: counted(draft) == (1, 0))
        parity = draft.service._parity
        await eventually(lambda: parity._num_kept_bytes == 0)


async def test_a_call_that_is_cancelled_is_not_checked():
    async with target_server() as target, draft_server(target.address, parity_check_every=1) as draft:
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config())
        await call.read()
        call.cancel()
        await all_free(target, draft)
        assert draft.service._parity._num_kept_bytes == 0
        assert draft.service._parity._checking is None


async def test_live_audio_is_not_checked(energy_vad):
    async with speaking_target() as target, speaking_draft(target.address, parity_check_every=1) as draft:
        await listen(draft, talk())
        assert draft.service._parity._checking is None


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ([(1, 2), (3,)], [(1, 2), (3,)], None),
        ([(1, 2), (3,)], [(1, 2), (4,)], (1, 0, 3, 4)),
        ([(1, 2)], [(1, 2, 3)], (0, 2, None, 3)),
        ([(1, 2), (3,)], [(1, 2)], (1, 0, 3, None)),
        ([], [(1,)], (0, 0, None, 1)),
        ([], [], None),
    ],
)
def test_the_first_difference_is_returned(one, other, difference):
    assert first_difference(one, other) == difference
