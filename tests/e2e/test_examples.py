"""Every example runs unchanged on the bundled pair."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import notebook
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


# Other tests run these.
ELSEWHERE = {"captions_recogniser.py", "distil.py", "live_captions.py", "pipecat_captions.py"}
NAMES = sorted({path.name for path in EXAMPLES.glob("*.py")} - ELSEWHERE)


LONG = ("compare.py", "evaluate.py", "low_level.py", "transcribe.py")  # other tests cover their results


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in NAMES]
)
def test_an_example_runs(name, short_samples):
    takes = {
        "evaluate.py": [str(short_samples)],
        "compare.py": [str(short_samples / "01_phone_call.flac")],
        "sentence_in_numbers.py": ["demo-draft-tiny", "demo-target"],
    }
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


def test_the_notebook_has_its_outputs_and_nothing_of_a_machine():
    text = notebook.TOUR.read_text(encoding="utf-8")
    cells = notebook.cells_of(json.loads(text))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] and not cell["metadata"] for cell in cells)
    assert len(text) < 20_000
    assert not re.search(r"/(?:home|root|tmp|work|usr)/|\d\d:\d\d:\d\d", text)


@pytest.mark.nightly
def test_the_notebook_prints_what_it_was_saved_with():
    tour = json.loads(notebook.TOUR.read_text(encoding="utf-8"))
    printed, saved = notebook.printed_by(tour), notebook.saved_in(tour)
    assert list(map(without_figures, printed)) == list(map(without_figures, saved))
    assert "all the same" in "".join(printed)


def without_figures(text: str) -> str:
    """Return a text without numbers and bars: which tokens of a hint are accepted depends on time."""
    return re.sub(r"\d+|#+", "0", text)
