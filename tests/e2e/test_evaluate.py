"""``specwhisper evaluate`` on the bundled pair, through servers of its own processes."""

from __future__ import annotations

import json
import shutil

import pytest

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.processes import run


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["full", "pipelined", "sync"])
def test_the_split_writes_what_the_target_alone_writes(demo_server, tmp_path, mode):
    for name in ("01_phone_call.flac", "05_at_the_station.ogg"):
        shutil.copy(DEMO_FOLDER / "samples" / name, tmp_path)
    shutil.copy(DEMO_FOLDER / "samples" / "metadata.jsonl", tmp_path)
    file = tmp_path / "figures.json"
    arguments = ("--folder", str(tmp_path), "--mode", mode, "--language", "en", "--json", str(file))
    status, out, err = run("specwhisper_client.cli.main", "evaluate", "--server", demo_server, *arguments)
    assert (status, err) == (0, "")
    assert "2 of 2 identical" in out
    figures = json.loads(file.read_text())
    assert (figures["standard"]["name"], figures["speculative"]["name"]) == ("target-only", mode)
    assert figures["standard"]["wer"] == figures["speculative"]["wer"] < 0.05
    assert figures["speculative"]["acceptance_rate"] > 0.5
    assert figures["speed_up_of_batches"]["num_rounds"] == 2
