"""The law of capacity, the sizing guide's arithmetic, and what the programs count."""

import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.capacity import steps
from experiments.capacity.clients import Counts
from experiments.capacity.crowd import NUM_DRAFT_SERVERS, measure
from experiments.capacity.ladder import (
    Outcome,
    find_bars,
    gain_of,
    sizes_needed,
    split_of,
)
from experiments.capacity.recited import TEXT, RecitedDraft, RecitedModel
from experiments.capacity.sizing import GIB, measure_hint, num_sessions, num_weights, slot_bytes
from experiments.capacity.steps import Machine, floor_s
from experiments.capacity.target import Usage
from experiments.common.bench.report import ROOT
from experiments.common.models.checkpoints import PUBLISHED, Shape, build_checkpoint, build_model
from specwhisper.engine.verifier import Verifier
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Commit, Mode

MACHINE = Machine(1e10, dict.fromkeys(("float32", "bfloat16", "int8"), 1e11))
NARROW = replace(PUBLISHED["tiny"], d_model=64, heads=2, decoder_layers=1, words="few")


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


@pytest.mark.parametrize("where", NUM_DRAFT_SERVERS)
async def test_a_crowd_and_its_messages_are_measured(where):
    figures = await measure(where, 2, pass_ms=1.0, period_s=0.3)
    assert figures.num_passes > 10 and figures.batch_size > 1 and figures.num_tokens >= 1
    assert figures.session_us > 0 and figures.message_us > 0 and figures.messages_per_s > 0


def test_every_precision_is_timed_against_its_floor(monkeypatch):
    monkeypatch.setattr(steps, "PUBLISHED", {"tiny": NARROW})
    found = steps.measure_shape("tiny", MACHINE, rounds=2, seed=0, console=Console(quiet=True))
    assert {row.name for row in found} == {"transformers", *steps.PRECISIONS}
    assert len(found) == 3 + 5 * len(steps.PRECISIONS)
    assert all(len(row.seconds) == 2 and min(row.seconds) > 0 < row.floor_s for row in found)


def test_more_work_has_a_higher_floor():
    config = build_model(NARROW)[0].config
    floors = [
        floor_s(config, dtype, MACHINE, rows=rows, width=width, held=60)
        for dtype, rows, width in (("int8", 1, 1), ("float32", 1, 1), ("float32", 1, 5), ("float32", 8, 5))
    ]
    assert floors == sorted(set(floors))


def test_memory_of_a_slot_matches_the_model():
    shape = Shape()
    model = WhisperModel(build_checkpoint(shape)[1], 2, has_static_shapes=True)
    assert slot_bytes(shape, "float32") == model.bytes_per_slot


def test_the_largest_number_of_sessions_that_fit():
    shape, reserved = PUBLISHED["large-v3"], 3 * GIB
    held = num_sessions(80 * GIB, shape, "float16", reserved_bytes=reserved)
    taken = [
        (held + 1 + more) * slot_bytes(shape, "float16") + 2 * num_weights(shape) + reserved
        for more in (0, 1)
    ]
    assert taken[0] <= 80 * GIB < taken[1]
    assert num_sessions(4 * GIB, shape, "float16", reserved_bytes=reserved) == 0


def test_the_longest_hint_takes_some_megabytes():
    hint = measure_hint()
    assert 2e6 < hint.tokens < 4e6
    assert 5e6 < hint.searched < 12e6
