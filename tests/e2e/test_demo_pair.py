"""The bundled pair, started without naming a model, transcribes real speech."""

import json
import math
from pathlib import Path

import jiwer
import pytest

from experiments.demo_pair.vocabulary import words
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.processes import run_client
from tests.nightly import NIGHTLY, mostly_nightly

INDEX = DEMO_FOLDER / "samples" / "metadata.jsonl"
SAMPLES = [json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines()]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def transcripts(demo_server, tmp_path_factory) -> dict[str, dict[str, dict]]:
    """Return every sample's transcript by mode and file."""
    found = {}
    # Only nightly runs decode the long recordings, and in every mode.
    longest_by_day_s = {"target-only": 20.0, "sync": 15.0, "full": 15.0}
    for mode in ("target-only", "sync", "pipelined", "full") if NIGHTLY else longest_by_day_s:
        longest_s = math.inf if NIGHTLY else longest_by_day_s[mode]
        names = [sample["file_name"] for sample in SAMPLES if sample["seconds"] <= longest_s]
        recordings = [str(DEMO_FOLDER / "samples" / name) for name in names]
        folder = tmp_path_factory.mktemp(mode)
        options = ("--language", "en", "--mode", mode, "--output-format", "json", "--output-dir", folder)
        status, _, err = run_client("transcribe", *recordings, "--quiet", "--server", demo_server, *options)
        assert (status, err) == (0, "")
        found[mode] = {
            Path(r).name: json.loads((folder / f"{Path(r).stem}.json").read_text()) for r in recordings
        }
    return found


@pytest.mark.parametrize("mode", mostly_nightly(["full", "sync", "pipelined"]))
def test_every_mode_writes_the_text_of_target_only(transcripts, mode):
    def segments(of: str) -> dict[str, list[tuple]]:
        return {
            name: [(s["start_s"], s["end_s"], s["tokens"]) for s in transcript["segments"]]
            for name, transcript in transcripts[of].items()
        }

    expected = segments("target-only")
    assert segments(mode) == {name: expected[name] for name in transcripts[mode]}


def test_the_targets_word_error_rate_is_low(transcripts):
    found = transcripts["target-only"]
    samples = [sample for sample in SAMPLES if sample["file_name"] in found]
    said = [" ".join(words(sample["text"])) for sample in samples]
    written = [" ".join(words(found[sample["file_name"]]["text"])) for sample in samples]
    assert jiwer.wer(said, written) < 0.05


def test_the_draft_is_accepted_often_but_not_always(transcripts):
    statistics = [transcript["stats"] for transcript in transcripts["sync"].values()]
    accepted = sum(s["num_accepted"] for s in statistics)
    verified = sum(s["num_verified"] for s in statistics)
    assert 0.6 < accepted / verified < 1  # of whole blocks, including tokens after a wrong one
