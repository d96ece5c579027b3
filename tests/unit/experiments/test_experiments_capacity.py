"""The law of capacity, the sizing guide's arithmetic, and what the programs count."""

import subprocess
import sys
from dataclasses import replace

import pytest

from experiments.capacity.clients import Counts
from experiments.capacity.ladder import (
    Outcome,
    find_bars,
    gain_of,
    sizes_needed,
    split_of,
)
from experiments.capacity.recited import TEXT, RecitedDraft, RecitedModel
from experiments.capacity.sizing import slot_bytes
from experiments.capacity.target import Usage
from experiments.common.bench.report import ROOT
from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.engine.verifier import Verifier
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Commit, Mode


def outcome(mode: Mode, num_tokens: int, num_sessions: int = 2, **more: int) -> Outcome:
    usage = Usage(50, 100, forward_ns=5_000_000_000, encode_ns=2_000_000_000, cpu_ns=8_000_000_000)
    counts = Counts(num_tokens, num_passes=100, **more)
    return Outcome(mode, num_sessions, 10.0, counts, usage, resident_mb=100.0)


def test_a_gain_compares_rounds_and_has_a_bar_near_eight_sessions():
    verified = {"num_verifying": 10, "num_verified": 30}
    rounds = {
        (Mode.TARGET_ONLY, 2): [outcome(Mode.TARGET_ONLY, 100)] * 2,
        (Mode.FULL, 2): [outcome(Mode.FULL, 150, **verified)] * 2,
        (Mode.FULL, 1): [outcome(Mode.FULL, 150, 1, **verified)] * 2,  # without target-only
    }
    assert split_of(rounds) == [(Mode.FULL, 2)]
    gain = gain_of(rounds, Mode.FULL, 2, seed=0)
    assert sizes_needed([gain]) == [(2, 1), (2, 4)]
    assert (gain.width, gain.batch_sizes) == (3, (2, 2))
    assert (gain.decoding.value, gain.whole.value) == pytest.approx((1.5, 1.5))
    near, far = replace(gain, num_sessions=7), replace(gain, num_sessions=64)
    assert [bar.holds for bar in find_bars([far, near], [9.0, 1.7])] == [True]
    assert [bar.holds for bar in find_bars([near], [1.8])] == [False]


@pytest.mark.nightly
@pytest.mark.parametrize("more", [[], ["--decoding-only"]])
def test_the_ladder_counts_and_compares_every_text(more):
    command = [sys.executable, "-m", "experiments.capacity", "ladder", "--quick", "--sessions", "2", *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "full, 2 sessions: decoding gained" in done.stdout


def test_a_recited_window_has_its_text_whatever_the_draft_says():
    verifier = Verifier(RecitedModel(1, pass_ms=0))
    verifier.open("one", Mode.FULL, DecodingOptions.greedy(language="en", timestamps=False))
    draft, commits = RecitedDraft(7, 8_000), []
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


def test_memory_of_a_slot_matches_the_model():
    shape = Shape()
    model = WhisperModel(build_checkpoint(shape)[1], 2, has_static_shapes=True)
    assert slot_bytes(shape, "float32") == model.bytes_per_slot
