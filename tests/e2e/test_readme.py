"""Python programs of the README and of the pages on transcribing run when pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import Server

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/transcribing.md")
NEEDS_THE_HUB = "meta-llama"  # a page on text models names one; no test downloads a model

pytestmark = pytest.mark.timeout(300)


def programs() -> Iterator[object]:
    """Return each Python block of the pages, named by its page and its line."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if NEEDS_THE_HUB not in block[1]:
                yield pytest.param(block[1], id=f"{page}:{text.count(chr(10), 0, block.start()) + 2}")


@pytest.fixture(scope="module")
def addresses(start_server_for_all) -> Iterator[dict[str, str]]:
    """Start a draft server and a gateway; return addresses by those of the pages."""
    pair = ("--target-model", "demo-target", "--draft-model", "demo-draft-tiny")
    draft_server = start_server_for_all("specwhisper_draft_server", *pair)
    gateway = Server("specwhisper_gateway", "--port", "0", "--server", draft_server.address)
    yield {"127.0.0.1:50051": draft_server.address, "127.0.0.1:8000": gateway.address}
    gateway.end()


@pytest.mark.parametrize("program", list(programs()))
def test_a_program_runs_when_pasted(program, addresses):
    for stated, actual in addresses.items():
        program = program.replace(stated, actual)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"[a-z]{3}.*\.", done.stdout), "no sentence was printed"
