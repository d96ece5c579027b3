"""The replay that the README links is one that the page would write today."""

from __future__ import annotations

from pathlib import Path

from specwhisper_gateway.page_files import RECORDING_MARK, replay_template

REPLAY = Path(__file__).parents[2] / "docs" / "figures" / "replay.html"


def test_the_linked_replay_has_the_page_of_today():
    before, behind = replay_template().split(RECORDING_MARK)
    written = REPLAY.read_text()
    assert written.startswith(before) and written.endswith(behind), "run specwhisper_gateway.record anew"
