"""Servers of the image for CPUs run where torch is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from specwhisper.types import VoiceEvent
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.sources import file
from specwhisper_client.streaming import StreamingClient
from tests.e2e.processes import Server
from tests.nightly import mostly_nightly
from tests.unit.audio.test_speech import SAMPLES

TORCH = "torch,transformers,accelerate,safetensors"
CAPTIONS = "1\n00:00:00,000 --> 00:00:05,000\nHello.\n"


@pytest.fixture(scope="module")
def target(checkpoints) -> Iterator[Server]:
    """Start a target server in a process that cannot import torch."""
    server = Server(
        "tests.without", TORCH, "specwhisper_target_server", "--port", "0", "--model", checkpoints.target
    )
    yield server
    server.end()


@pytest.fixture(params=mostly_nightly(["whisper", "recogniser", "target-only"]))
def address(request, target, checkpoints, tmp_path) -> Iterator[str]:
    """Start a draft server in a process that cannot import torch."""
    captions = tmp_path / "captions.srt"
    captions.write_text(CAPTIONS)
    arguments = {
        "whisper": ["--draft-model", checkpoints.draft],
        "target-only": ["--mode", "target-only"],
        "recogniser": [
            "--draft-recogniser",
            "examples.captions_recogniser:create",
            "--draft-model",
            str(captions),
        ],
    }[request.param]
    command = ("specwhisper_draft_server", "--port", "0", "--target", target.address, *arguments)
    server = Server("tests.without", TORCH, *command)
    yield server.address
    server.end()


async def test_recordings_and_live_audio_are_transcribed(address, noise):
    async with TranscriptionClient(address) as client:
        assert (await client.transcribe_file(noise(3.0))).segments
    async with StreamingClient(address) as stream:
        live = LiveTranscription(stream, file(SAMPLES / "01_phone_call.flac", is_paced=False))
        speech = [update.speech async for update in live if update.speech is not None]
    assert set(speech) == {VoiceEvent.BEGIN, VoiceEvent.END}


async def test_torch_is_not_loaded_where_it_is_installed(demo_servers):
    """The servers of ``make demo``, which are started without any flag for it."""
    async with TranscriptionClient(demo_servers.draft.address) as client:
        assert (await client.transcribe_file(SAMPLES / "01_phone_call.flac", language="en")).text
    for server in (demo_servers.draft, demo_servers.target):
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert "onnxruntime" in maps
        assert "torch" not in maps
