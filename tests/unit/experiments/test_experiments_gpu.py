"""The GPU's script goes through everything on a CPU, and judges what it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from experiments.common.bench.report import ROOT
from experiments.gpu.__main__ import Figures, find_bars, gpu
from experiments.gpu.identity import Check
from experiments.gpu.passes import Timed
from experiments.gpu.service import ACCEPTANCE, Texts, Throughput
from experiments.gpu.weights import Place, Weights
from specwhisper.types import Mode

CPU = Place(torch.device("cpu"), is_narrow=True, seed=0)


@pytest.mark.nightly
def test_every_stage_on_narrow_shapes(tmp_path, capsys):
    file = tmp_path / "figures.json"
    with pytest.raises(SystemExit) as ended:
        gpu(device="cpu", quick=True, json=file)
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    figures = json.loads(file.read_text())
    assert all(figures[kind] for kind in "checks passes encodings carried".split())
    assert {one["mode"] for one in figures["carried"]} == {"target-only", "sync", "full"}
    assert all(one["tokens_per_s"] and one["num_texts"] and one["p95_s"] for one in figures["carried"])
    assert all(one["holds"] for one in figures["checks"]) and len(figures["checks"]) == 5
    assert not figures["failures"] and not figures["left_out"]
    assert "a CPU, narrow shapes" in shown


def test_a_draft_has_the_requested_acceptance():
    vocabulary = Weights("tiny", CPU).checkpoint("float32").vocabulary
    trace = Texts(num_recordings=2, num_tokens=400, seed=3).trace(vocabulary)
    for decoding in trace.decodings:
        assert decoding.tokens[-1] == vocabulary.end_of_text
        agreed = [decoding.draft_after(decoding.tokens[:i])[0] == decoding.tokens[i] for i in range(400)]
        assert sum(agreed) / 400 == pytest.approx(ACCEPTANCE, abs=0.08)


def test_bars():
    timed = Timed("large-v3", "float16", 1, 8, ms=0.9)
    carried = Throughput(
        "large-v3", "float16", Mode.FULL.value, 32, 81.0, 0.3, 900.0, 900.0, 4.0, 30.0, 99, 0
    )
    figures = Figures(
        passes=[
            timed,
            replace(timed, rows=32, width=5, ms=3.6),
            *(replace(timed, ms=9.0, **other) for other in ({"shape": "tiny"}, {"dtype": "float32"})),
            replace(timed, ms=9.0, width=1),
        ],
        checks=[Check("a, float32", True, ""), Check("b, float32", False, ""), Check("c", False, "")],
        carried=[
            replace(carried, num_sessions=1, requests_per_s=15.0, p95_s=0.05),
            carried,
            replace(carried, mode=Mode.TARGET_ONLY.value, requests_per_s=45.0),
            replace(carried, mode=Mode.SYNC.value, requests_per_s=0.0),
        ],
    )
    bars = find_bars(figures)
    assert [bar.value for bar in bars] == pytest.approx([0.9, 3.6, 81, 0.05, 1])
    assert [bar.holds for bar in bars] == [True, False, True, True, False]
    assert [line.split(":")[0] for line in figures.broken] == ["b, float32", "c"]
    assert find_bars(Figures(checks=[Check("a", True, "")])) == []


@pytest.mark.nightly
def test_a_machine_without_the_doors_packages_is_enough():
    script = """
import sys

missing = "accelerate av fastapi grpc_health grpc_reflection openai opentelemetry pysubs2 pytest_asyncio ray "
missing += "riva silero_vad starlette uvicorn websockets"
for name in missing.split():
    sys.modules[name] = None  # as if it were not installed
import experiments.gpu.__main__
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
