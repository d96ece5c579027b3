"""The GPU's script goes through everything on a CPU, and judges what it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from experiments.common.bench.report import ROOT
from experiments.common.replay.model import ReplayDraft
from experiments.gpu import absent
from experiments.gpu.__main__ import Stage, gpu
from experiments.gpu.floor import floor_s
from experiments.gpu.identity import Check
from experiments.gpu.passes import Point
from experiments.gpu.service import Throughput
from experiments.gpu.summary import Figures, find_bars
from experiments.gpu.texts import Texts
from experiments.gpu.weights import SHAPES, Place, Weights
from experiments.steps.floor import Machine
from specwhisper.types import Mode

CPU = Place(torch.device("cpu"), is_narrow=True, seed=0)


@pytest.mark.nightly
def test_every_stage_on_narrow_shapes(tmp_path, capsys):
    file = tmp_path / "figures.json"
    with pytest.raises(SystemExit) as ended:
        gpu(shape=["large-v3", "tiny"], device="cpu", quick=True, json=file)
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    figures = json.loads(file.read_text())
    kinds = ("checks", "points", "profiles", "beside", "tuned", "encodings", "agreements", "carried", "peers")
    assert all(figures[kind] for kind in kinds)
    assert {point["shape"] for point in figures["points"]} == {"large-v3", "tiny"}
    assert {one["mode"] for one in figures["carried"]} == {"target-only", "sync", "full"}
    assert all(one["num_tokens"] and one["num_texts"] and one["request_s"] for one in figures["carried"])
    assert all(one["holds"] for one in figures["checks"]) and len(figures["checks"]) > 60
    assert not figures["failures"] and not figures["left_out"]
    assert "a CPU, narrow shapes" in shown


@pytest.mark.nightly
def test_what_does_not_begin_in_time_is_left_out(tmp_path, capsys):
    file = tmp_path / "figures.json"
    with pytest.raises(SystemExit) as ended:
        gpu([Stage.PROFILE], shape=["tiny"], device="cpu", quick=True, minutes=0.001, json=file)
    assert ended.value.code == 0
    assert "Left out after 0.001 minutes: tiny: kernels by name" in " ".join(capsys.readouterr().out.split())
    assert len(json.loads(file.read_text())["points"]) == 2  # the first item had begun


def test_an_unknown_shape_is_refused(capsys):
    with pytest.raises(SystemExit, match="Unknown shape 'large-v9': choose from large-v3, turbo"):
        gpu([Stage.PROFILE], shape=["large-v9"], device="cpu")


def test_shapes_are_the_published_ones():
    sizes = {
        name: (shape.d_model, shape.encoder_layers, shape.decoder_layers) for name, shape in SHAPES.items()
    }
    assert sizes == {
        "large-v3": (1280, 32, 32),
        "turbo": (1280, 32, 4),
        "distil-large-v3": (1280, 32, 2),
        "tiny": (384, 4, 4),
    }


def test_made_up_words_are_as_many_as_whispers(monkeypatch):
    shape = replace(SHAPES["large-v3"], d_model=32, encoder_layers=1, decoder_layers=1, heads=2)
    monkeypatch.setitem(SHAPES, "large-v3", shape)
    weights = Weights("large-v3", replace(CPU, is_narrow=False))
    vocabulary = weights.checkpoint("float32").vocabulary
    assert (len(vocabulary), vocabulary.end_of_text, vocabulary.timestamp_begin) == (51_866, 50_257, 50_365)


def test_a_floor_counts_what_is_read():
    config = Weights("tiny", CPU).config
    machine = Machine(1e9, {"float16": 1e15, "bfloat16": 1e15, "float32": 1e15})
    size = {"rows": 4, "width": 2, "held": 10}
    exact, rounded = (
        floor_s(config, "float16", machine, **size, cross_cache=cache) for cache in (None, "int8")
    )
    cross_cache_bytes = 2 * 4 * 1500 * config.d_model * config.decoder_layers
    assert exact - rounded == pytest.approx(cross_cache_bytes * (2 - 1 - 2 / 32) / 1e9)
    assert floor_s(config, "float32", machine, **size) > 1.9 * exact


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_a_draft_has_the_requested_acceptance(acceptance):
    vocabulary = Weights("tiny", CPU).checkpoint("float32").vocabulary
    texts = Texts(num_recordings=2, num_tokens=400, acceptance=acceptance, seed=3)
    trace = texts.trace(vocabulary)
    for decoding in trace.decodings:
        assert len(decoding.tokens) == 400
        assert decoding.tokens[-1] == vocabulary.end_of_text
        agreed = [decoding.draft_after(decoding.tokens[:i])[0] == decoding.tokens[i] for i in range(400)]
        assert sum(agreed) / 400 == pytest.approx(acceptance, abs=0.08)
    assert len(texts.recording(0)) == 2 * 160_000
    assert texts.recording(0) != texts.recording(1)
    ReplayDraft(trace, vocabulary, None)


def point(rows: int, width: int, multiple: float, **changes) -> Point:
    made = Point("large-v3", "float16", None, False, rows, width, 1e-3, multiple * 1e-3, 5e-3)
    return replace(made, **changes)


def carried(mode: Mode, tokens: int, sessions: int = 64) -> Throughput:
    return Throughput(
        *(
            "large-v3",
            "float16",
            mode.value,
            sessions,
            0.8,
            2.0,
            tokens,
            tokens,
            5,
            0,
            (),
            1.0,
            tokens,
            tokens,
        )
    )


def test_bars():
    figures = Figures(
        points=[
            point(1, 8, 0.9),
            point(32, 5, 3.6),
            point(1, 8, 9.0, shape="tiny"),
            point(1, 8, 9.0, cross_cache="int8"),
            point(1, 8, 9.0, is_fallback=True),
            point(1, 8, 9.0, dtype="float32"),
            point(1, 1, 9.0),
        ],
        checks=[Check("a, float32", True, ""), Check("b, float32", False, ""), Check("c", False, "")],
        carried=[
            replace(carried(Mode.FULL, 260, sessions=1), request_s=(0.05,) * 96 + (0.3,) * 4),
            replace(carried(Mode.FULL, 260, sessions=32), request_s=(0.3,) * 162),
            replace(carried(Mode.TARGET_ONLY, 260, sessions=32), request_s=(0.3,) * 90),
            carried(Mode.SYNC, 260, sessions=32),
        ],
    )
    bars = find_bars(figures)
    assert [bar.value for bar in bars] == pytest.approx([0.9, 3.6, 1 / 81, 0.05, 1])
    assert [bar.holds for bar in bars] == [True, False, True, True, False]
    assert find_bars(Figures(checks=[Check("a", True, "")])) == []


def test_missing_packages_are_replaced_only_during_import(tmp_path, monkeypatch):
    (tmp_path / "needs_it.py").write_text(
        "import not_there\nfrom not_there.v1 import part\nnames = not_there.Error, part.Servicer\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(absent, "OPTIONAL", {"json": (), "not_there": ("not_there.v1",)})
    monkeypatch.setattr(absent, "OURS", ("needs_it",))
    assert absent.import_without() == ["not_there"]
    module = sys.modules.pop("needs_it")
    assert not {name for name in sys.modules if name.startswith("not_there")}
    assert sys.modules["json"] is json
    with pytest.raises(
        ImportError, match=r"not_there.v1.part.Servicer is needed .* not_there is not installed"
    ):
        module.part.Servicer(1)


@pytest.mark.nightly
def test_a_bare_machine_is_enough():
    script = """
import sys

missing = "accelerate av fastapi grpc_health grpc_reflection openai opentelemetry pysubs2 pytest_asyncio ray "
missing += "riva silero_vad soundfile soxr starlette uvicorn websockets"
for name in missing.split():
    sys.modules[name] = None  # as if it were not installed
import experiments.gpu.__main__
print(*experiments.gpu.MISSING)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["soundfile", "soxr"]
