"""The replay that the page saves, and the README's own, are one file of the current page."""

import re
from pathlib import Path

from specwhisper_gateway.page_files import PAGE, replay_template

REPLAY = Path(__file__).parents[3] / "docs" / "figures" / "replay.html"
MARK = "/*RECORDING*/"


def test_the_linked_replay_has_the_current_page():
    before, after = replay_template().split(MARK)
    written = REPLAY.read_text()
    assert written.startswith(before) and written.endswith(after), "save a session of the page again"


def test_a_replay_needs_no_other_file():
    assert f'RECORDING_MARK = "{MARK}"' in (PAGE / "main.js").read_text()
    script = replay_template().split('<script type="module">')[1]
    assert "import " not in re.sub(r"//.*", "", script)
