"""A draft server without a Whisper model runs where torch is not installed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from specwhisper.types import VoiceEvent
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.sources import file
from specwhisper_client.streaming import StreamingClient
from tests.e2e.processes import Server
from tests.unit.draft_server.test_silero import SAMPLES

TORCH = "torch,transformers,huggingface_hub,accelerate,safetensors"
CAPTIONS = "1\n00:00:00,000 --> 00:00:05,000\nHello.\n"


@pytest.fixture(params=["target-only", "recogniser"])
async def address(request, pair, tmp_path) -> AsyncIterator[str]:
    """Start a draft server in a process that cannot import torch."""
    arguments = ["--mode", "target-only"]
    if request.param == "recogniser":
        captions = tmp_path / "captions.srt"
        captions.write_text(CAPTIONS)
        arguments = ["--draft-recogniser", "examples.live_captions:create", "--draft-model", str(captions)]
    command = ("specwhisper_draft_server", "--port", "0", "--target", pair.target.address, *arguments)
    server = Server("tests.without", TORCH, *command)
    try:
        yield server.address
    finally:
        server.end()


async def test_recordings_and_live_audio_are_transcribed(address, pair, noise):
    texts = []
    for server in (pair.draft.address, address):
        async with TranscriptionClient(server) as client:
            segments = (await client.transcribe_file(noise(3.0))).segments
        texts.append([segment.tokens for segment in segments])
    assert texts[0] == texts[1] != []
    async with StreamingClient(address) as stream:
        live = LiveTranscription(stream, file(SAMPLES / "01_phone_call.flac", is_paced=False))
        speech = [update.speech async for update in live if update.speech is not None]
    assert set(speech) == {VoiceEvent.BEGIN, VoiceEvent.END}
