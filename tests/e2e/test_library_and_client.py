"""Library and client return the same."""

from pathlib import Path

import pytest

import specwhisper
from specwhisper import Layout, SpeculativeWhisper
from specwhisper_client import TranscriptionClient

pytestmark = pytest.mark.timeout(600)
SAMPLE = Path(specwhisper.__file__).parent / "demo" / "samples" / "01_phone_call.flac"


async def test_the_library_and_the_client_return_the_same(demo_server):
    asked = {"language": "en", "word_timestamps": True, "condition_on_previous_text": True}
    local = SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu").transcribe(SAMPLE, **asked)
    async with TranscriptionClient(demo_server) as client:
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
