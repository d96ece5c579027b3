"""A recited text, its draft, and sessions of an engine in its thread."""

from __future__ import annotations

import pytest

from experiments.crowd.__main__ import NUM_SHARED, measure_server
from experiments.crowd.in_process import MODE, OPTIONS, PIECE_SAMPLES, run_engine
from experiments.crowd.recited import TEXT, RecitedDraft, RecitedModel
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.types import Commit


@pytest.mark.parametrize("number", [0, 7])
def test_every_window_has_the_text_whatever_the_draft_says(number):
    verifier = Verifier(RecitedModel(1, pass_ms=0), executor=InlineExecutor())
    verifier.open("one", MODE, OPTIONS)
    draft, commits = RecitedDraft(number, PIECE_SAMPLES), []
    messages = draft.begin()
    while len({commit.window_id for commit in commits if commit.is_final}) < 3:
        for message in messages:
            verifier.submit("one", message)
        events = [event for _, event in verifier.step()]
        commits += [event for event in events if isinstance(event, Commit) and event.tokens]
        messages = [message for event in events for message in draft.answer(event)]
    for window_id in range(3):
        tokens = [token for commit in commits if commit.window_id == window_id for token in commit.tokens]
        assert tuple(tokens) == TEXT
    accepted, verified = sum(c.num_accepted for c in commits), sum(c.num_verified for c in commits)
    assert 0.3 * verified < accepted < verified, "the draft errs now and then"


async def test_all_sessions_take_part_in_most_forward_passes():
    passes = await run_engine(4, pass_ms=2.0, warm_up_s=0.05, period_s=0.3)
    assert len(passes) > 10
    assert sum(each.num_rows for each in passes) / len(passes) > 3


@pytest.mark.parametrize("where", NUM_SHARED)
async def test_a_server_and_its_messages_are_measured(where):
    figures = await measure_server(where, 2, pass_ms=1.0, period_s=0.3)
    assert figures.num_passes > 10 and figures.batch_size > 1 and figures.num_tokens >= 1
    assert figures.session_us > 0 and figures.message_us > 0 and figures.messages_per_s > 0
