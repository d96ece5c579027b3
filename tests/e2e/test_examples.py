"""Every example runs unchanged on the bundled pair."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specwhisper import SpeculativeWhisper
from specwhisper.model.checkpoints.names import DEMO_FOLDER

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.timeout(300)


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def short_samples(tmp_path) -> Path:
    """Return a data set for `specwhisper evaluate`: two short bundled recordings."""
    samples = DEMO_FOLDER / "samples"
    lines = (samples / "metadata.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    shortest = sorted(lines, key=lambda line: json.loads(line)["seconds"])[:2]
    (tmp_path / "metadata.jsonl").write_text("".join(shortest), encoding="utf-8")
    for line in shortest:
        shutil.copy(samples / json.loads(line)["file_name"], tmp_path)
    return tmp_path


ELSEWHERE = {"distil.py", "live_captions.py"}  # other tests run these
NAMES = sorted({path.name for path in EXAMPLES.glob("*.py")} - ELSEWHERE)


LONG = ("compare.py", "evaluate.py", "low_level.py", "transcribe.py")  # other tests cover their results


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in NAMES]
)
def test_an_example_runs(name, short_samples):
    takes = {"evaluate.py": [str(short_samples)], "compare.py": [str(short_samples / "01_phone_call.flac")]}
    assert run(f"examples/{name}", *takes.get(name, ())).count("\n") >= 2


@pytest.mark.nightly
def test_a_distilled_draft_fits_its_target(tmp_path):
    out = run("examples/distil.py", "--out", str(tmp_path), "--steps", "2", "--batch-size", "2")
    assert "agreement before" in out
    pair = SpeculativeWhisper(str(tmp_path), "demo-target", device="cpu", batch_size=1)
    assert pair.shares_encoder
    recording = DEMO_FOLDER / "samples" / "04_harbor_in_the_storm.ogg"
    drafted = pair.transcribe(recording, language="en")
    assert drafted.text == pair.without_draft().transcribe(recording, language="en").text
    assert drafted.stats.overall_acceptance_rate > 0


@pytest.mark.nightly
def test_the_notebook_runs():
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    out = run("-c", program)
    assert "all the same" in out
    assert "accepted" in out
