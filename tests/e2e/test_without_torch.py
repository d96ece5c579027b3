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
from tests.unit.audio.test_speech import SAMPLES

RECORDING = SAMPLES / "01_phone_call.flac"
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


@pytest.fixture(params=["whisper", "recogniser", "target-only"])
def address(request, target, checkpoints, tmp_path) -> Iterator[str]:
    """Start a draft server in a process that cannot import torch."""
    captions = tmp_path / "captions.srt"
    captions.write_text(CAPTIONS)
    recogniser = ("--draft-recogniser", "examples.captions_recogniser:create", "--draft-model", str(captions))
    arguments = {
        "whisper": ("--draft-model", checkpoints.draft),
        "target-only": ("--mode", "target-only"),
        "recogniser": recogniser,
    }[request.param]
    command = ("specwhisper_draft_server", "--port", "0", "--target", target.address, *arguments)
    server = Server("tests.without", TORCH, *command)
    yield server.address
    server.end()


async def transcribe(address: str) -> None:
    """Transcribe a recording and live audio."""
    async with TranscriptionClient(address) as client:
        assert (await client.transcribe_file(RECORDING, language="en")).segments
    async with StreamingClient(address) as stream:
        live = LiveTranscription(stream, file(RECORDING, is_paced=False))
        speech = [update.speech async for update in live if update.speech is not None]
    assert set(speech) == {VoiceEvent.BEGIN, VoiceEvent.END}


@pytest.mark.nightly
async def test_servers_run_where_torch_is_not_installed(address):
    await transcribe(address)


async def test_torch_is_not_loaded_where_it_is_installed(demo_servers):
    """The servers of ``make demo``, which are started without any flag for it."""
    await transcribe(demo_servers.draft.address)
    for server in (demo_servers.draft, demo_servers.target):
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert "onnxruntime" in maps
        assert "torch" not in maps
