"""A recogniser pauses where its text saves the target nothing, or comes too late to be shown."""

import pytest

from specwhisper.types import SAMPLE_RATE, Commit, Timing, Window, WindowOpened
from specwhisper_recognisers.worth import (
    IS_LATE,
    PAUSE_SAMPLES,
    SAVES_NOTHING,
    TRIAL_SAMPLES,
    Trial,
    Worth,
    judge,
)

HELPS = ""
NUM_SAMPLES = 60 * SAMPLE_RATE
FORWARD_NS, TOKEN_NS = 1_000_000, 10_000


@pytest.mark.parametrize(
    ("saved_share", "late_share", "of_recording", "of_live"),
    [
        (0.5, 0.0, HELPS, HELPS),
        (0.03, 0.0, HELPS, HELPS),
        (0.5, 0.6, HELPS, IS_LATE),
        (0.01, 0.0, SAVES_NOTHING, HELPS),
        (-0.1, 0.0, SAVES_NOTHING, HELPS),
        (0.0, 0.5, SAVES_NOTHING, HELPS),
        (0.0, 0.6, IS_LATE, IS_LATE),
        (-0.1, 1.0, IS_LATE, IS_LATE),
    ],
)
def test_a_trial_leads_to_a_pause_or_none(saved_share, late_share, of_recording, of_live):
    trial = Trial(saved_share * 1e9, (1 - saved_share) * 1e9, NUM_SAMPLES, round(late_share * NUM_SAMPLES))
    assert judge(trial, is_live=False) == of_recording
    assert judge(trial, is_live=True) == of_live


def commit(num_hinted: int, num_right: int, *, base: int = 20) -> Commit:
    return Commit(
        1,
        base,
        (7,) * (num_right + 1),
        num_verified=num_hinted,
        num_accepted=num_right,
        num_hinted=num_hinted,
        num_hinted_first=num_hinted,
        timing=Timing(forward_ns=FORWARD_NS + TOKEN_NS * num_hinted, token_ns=TOKEN_NS),
    )


@pytest.mark.parametrize(
    ("commits", "pause"),
    [
        ([commit(4, 4)], HELPS),
        ([commit(4, 1)] * 3 + [commit(0, 0)] * 20, HELPS),
        ([commit(0, 0)] * 20, SAVES_NOTHING),
        ([commit(4, 0)] * 20, SAVES_NOTHING),
        ([commit(4, 4, base=0), *[commit(0, 0)] * 20], SAVES_NOTHING),
        ([Commit(1, 20, ())], HELPS),
    ],
    ids=["right", "seldom right", "no text", "wrong", "the target's own earlier text", "no forward pass"],
)
def test_each_right_token_of_a_recogniser_saves_a_forward_pass(commits, pause):
    worth = Worth(is_live=False)
    worth.observe_target(0)
    worth.observe_window(WindowOpened(Window(1, 0, 3_000, (1, 2, 3), 200), opening=(7,) * 5))
    for each in commits:
        worth.observe_commit(each)
    worth.observe_target(TRIAL_SAMPLES - 1)
    assert not worth.pause
    worth.observe_target(TRIAL_SAMPLES)
    assert worth.pause == pause


def test_a_paused_recogniser_tries_again_and_is_judged_by_that_alone():
    worth = Worth(is_live=True)
    now = 1_000 * SAMPLE_RATE  # a session may continue another one's audio
    worth.observe_target(now)
    worth.observe_audio(NUM_SAMPLES, is_late=True)
    now += TRIAL_SAMPLES
    worth.observe_target(now)
    assert worth.pause == IS_LATE
    worth.observe_audio(NUM_SAMPLES, is_late=True)
    worth.observe_target(now + PAUSE_SAMPLES - 1)
    assert worth.pause
    now += PAUSE_SAMPLES
    worth.observe_target(now)
    assert not worth.pause
    worth.observe_audio(NUM_SAMPLES, is_late=False)
    worth.observe_target(now + TRIAL_SAMPLES)
    assert not worth.pause
