"""The timing program on narrow models and with given figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from experiments.common.models.checkpoints import build_model, save_checkpoint
from experiments.common.models.published import PUBLISHED
from experiments.steps import __main__ as steps
from experiments.steps import against
from experiments.steps.floor import Machine, floor_s
from specwhisper.errors import SpecWhisperError
from specwhisper.model.onnx.rounding import sums_bytes_exactly

MACHINE = Machine(1e10, dict.fromkeys(("float32", "bfloat16", "int8"), 1e11))
NARROW = replace(PUBLISHED["tiny"], d_model=64, heads=2, decoder_layers=1, words="few")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setattr(steps, "PUBLISHED", {"tiny": NARROW, "small": NARROW})


def test_every_precision_is_timed_against_its_floor():
    found = steps.measure_shape("tiny", MACHINE, rounds=2, seed=0, console=Console(quiet=True))
    names = ("transformers", "float32", "bfloat16", *(("int8",) if sums_bytes_exactly() else ()))
    assert {row.name for row in found} == set(names)
    assert len(found) == 3 + 5 * (len(names) - 1)
    assert all(len(row.seconds) == 2 and min(row.seconds) > 0 < row.floor_s for row in found)


@pytest.mark.nightly
def test_two_trees_are_timed_in_turns(tmp_path, monkeypatch):
    if not sums_bytes_exactly():
        monkeypatch.setattr(against, "DTYPES", ("float32",))
    folder = save_checkpoint(NARROW, tmp_path / "narrow")
    pairs = against.compare({"narrow": folder}, against.ROOT, rounds=2, seed=0, console=Console(quiet=True))
    assert len(pairs) == len(against.DTYPES) * len(against.SIZES)
    assert all(len(times) == 2 and min(times) > 0 for p in pairs for times in (p.now_ms, p.before_ms))


@pytest.mark.nightly
def test_a_tree_that_cannot_step_is_reported(tmp_path):
    with pytest.raises(SpecWhisperError, match="ended at"):
        against.compare({"none": tmp_path}, against.ROOT, rounds=1, seed=0, console=Console(quiet=True))


def test_ratios_and_the_drafts_step_have_bars():
    pairs = [
        against.Pair("tiny", "int8", 1, 1, [0.6, 0.6], [1.0, 1.0]),
        against.Pair("target", "float32", 1, 5, [0.7, 0.7], [1.0, 1.0]),
        against.Pair("draft", "float32", 1, 1, [0.19, 0.19], [0.1, 0.1]),
        against.Pair("draft", "float32", 8, 1, [9.0, 9.0], [0.1, 0.1]),
    ]
    assert [bar.holds for bar in against.find_bars(pairs, "target", "draft", seed=0)] == [True, False, True]


def test_the_loop_is_timed_beside_its_passes():
    loop = steps.measure_loop(1, 0, "float32")
    pairs = list(zip(*loop.values(), strict=True))
    assert all(0 < forward_s < total_s for total_s, forward_s in pairs), pairs


def test_more_work_has_a_higher_floor():
    config = build_model(NARROW)[0].config
    sizes = [{"rows": r, "width": w, "held": 60} for r, w in ((1, 1), (1, 5), (8, 5))]
    floors = [floor_s(config, "float32", MACHINE, **size) for size in sizes]
    assert floors == sorted(floors) and floors[0] < floors[-1]
    assert floor_s(config, "int8", MACHINE, **sizes[0]) < floors[0]


def test_bars_use_the_worse_end_of_the_interval():
    def row(shape, name, rows, width, seconds, floor_s=0.1):
        return steps.Row(shape, name, rows, width, floor_s, list(seconds))

    table = [
        row("tiny", "transformers", 1, 1, [1.0, 1.0]),
        row("tiny", "int8", 1, 1, [0.3, 0.5]),
        row("small", "float32", 8, 5, [0.12, 0.12]),
    ]
    bars = steps.find_bars(table, {"float32": {"total_s": [1.0], "forward_s": [0.8]}}, seed=0)
    held = {bar.name: bar.holds for bar in bars}
    assert held == {
        "int8 pass of 1 on tiny shape over transformers' in float32": False,
        "pass of 8 sessions x 5 tokens on small shape, float32, over its floor": True,
        "the loop's own share of a pass of 8 sessions, float32": False,
    }
