"""The GPU's script goes through everything on a CPU, and judges what it finds."""

import json
import subprocess
import sys

import pytest
import torch

from experiments.common.bench.report import ROOT
from experiments.gpu.__main__ import gpu
from experiments.gpu.weights import Place

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
    assert not figures["failures"]
    assert "a CPU, narrow shapes" in shown


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
