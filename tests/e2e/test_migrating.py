"""Snippets of docs/migrating.md run; library and client agree."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import specwhisper
from specwhisper import Layout, SpeculativeWhisper
from specwhisper_client import TranscriptionClient

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/migrating.md").read_text(), re.M | re.S)
SAMPLE = Path(specwhisper.__file__).parent / "demo" / "samples" / "01_phone_call.flac"
# Replacements for the bundled models and this machine.
REPLACEMENTS = {
    '"tiny", "large-v3"': '"demo-draft-tiny", "demo-target"',
    'device="cuda", dtype="float16"': 'device="cpu"',
}


@pytest.fixture(scope="module")
def server(demo_server) -> str:
    return demo_server


def is_of_another_program(snippet: str) -> bool:
    return snippet.startswith("# before")


def test_each_program_has_a_snippet_before_and_after():
    assert sum(map(is_of_another_program, SNIPPETS)) == 3
    assert len(SNIPPETS) > 6


@pytest.mark.parametrize("snippet", [*filter(is_of_another_program, SNIPPETS)])
def test_snippets_of_other_programs_are_python(snippet):
    compile(snippet, "docs/migrating.md", "exec")


@pytest.mark.nightly
def test_our_snippets_run(server, tmp_path, monkeypatch, capsys):
    shutil.copy(SAMPLE, tmp_path / "talk.mp3")
    monkeypatch.chdir(tmp_path)
    replacements = {**REPLACEMENTS, "127.0.0.1:50051": server}
    namespace: dict[str, object] = {}
    for snippet in SNIPPETS:
        if is_of_another_program(snippet):
            continue
        for ours, here in replacements.items():
            snippet = snippet.replace(ours, here)
        exec(compile(snippet, "docs/migrating.md", "exec"), namespace)
    written = capsys.readouterr().out
    assert written.count("this is Clara") == 4


async def test_the_library_and_the_client_return_the_same(server):
    asked = {"language": "en", "word_timestamps": True, "condition_on_previous_text": True}
    local = SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu").transcribe(SAMPLE, **asked)
    async with TranscriptionClient(server) as client:
        remote = await client.transcribe_file(SAMPLE, **asked)
    layout = Layout(max_line_width=20, max_line_count=1)
    assert type(local) is type(remote)
    for written in ("to_txt", "to_tsv", "to_srt", "to_vtt"):
        assert getattr(local, written)() == getattr(remote, written)(), written
    assert local.to_srt(layout) == remote.to_srt(layout)
    assert local["segments"][0]["tokens"] == remote["segments"][0]["tokens"]
    assert (local.text, local.language, local.language_name) == (remote.text, "en", "english")
    assert (local.model.target, local.model.draft) == (remote.model.target, remote.model.draft)
    assert local.model.target_weights_digest == remote.model.target_weights_digest
    assert local.options == remote.options
    assert local.duration_s == pytest.approx(remote.duration_s)
