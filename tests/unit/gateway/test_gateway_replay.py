"""The replay that the README links to is built from the current page."""

import re
from pathlib import Path

from specwhisper_gateway.page_files import RECORDING_MARK, replay_page, replay_template

REPLAY = Path(__file__).parents[3] / "docs" / "figures" / "replay.html"


def test_the_linked_replay_has_the_current_page():
    before, after = replay_template().split(RECORDING_MARK)
    written = REPLAY.read_text()
    assert written.startswith(before) and written.endswith(after), "run specwhisper_gateway.record again"


def test_a_replay_is_written_without_a_browser():
    recording = {"title": "</script><script>alert(1)", "about": "", "events": []}
    page = replay_page(recording)
    assert "alert(1)" in page
    assert "</script><script>alert" not in page
    assert "import " not in re.sub(r"//.*", "", page.split('<script type="module">')[1])
