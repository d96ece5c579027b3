"""A Wyoming server's process for the bundled pair, and wyoming-openai on a gateway of the pair."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import SequenceMatcher

import pytest
import soundfile
from wyoming.asr import Transcribe
from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.event import Event, read_event, write_event

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.rpc.wyomings import RATE, say, transcript_of

SAMPLES = DEMO_FOLDER / "samples"
RECORDING = SAMPLES / "01_phone_call.flac"
SPOKEN_TEXT = json.loads((SAMPLES / "metadata.jsonl").read_text().splitlines()[0])["text"]
PYTHON = os.environ.get("SPECWHISPER_WYOMING_OPENAI_PYTHON", "")  # has that package
WYOMING_OPENAI = "0.8.0"
START_S = 60.0

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def likeness(text: str) -> float:
    return SequenceMatcher(None, text.lower().split(), SPOKEN_TEXT.lower().split()).ratio()


@pytest.fixture(scope="module")
def pcm() -> bytes:
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    assert rate == RATE
    return samples.tobytes()


def test_it_answers_at_standard_input_and_output(demo_server, pcm):
    command = [sys.executable, "-m", "specwhisper_wyoming", "--uri", "stdio://", "--server", demo_server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for event in (Transcribe(language="en"), AudioChunk(RATE, 2, 1, pcm), AudioStop()):
            write_event(event.event(), process.stdin)
        events: list[Event] = []
        while not events or events[-1].type != "transcript-stop":
            events.append(read_event(process.stdout))
        process.stdin.close()
        assert process.wait(START_S) == 0
    assert likeness(transcript_of(events)) > 0.9


def installed(package: str) -> str:
    """Return the version of a package of the other interpreter; empty without it."""
    if not PYTHON:
        return ""
    asked = f"from importlib.metadata import version; print(version('{package}'))"
    return subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(
    installed("wyoming-openai") != WYOMING_OPENAI,
    reason=f"SPECWHISPER_WYOMING_OPENAI_PYTHON names no Python with wyoming-openai {WYOMING_OPENAI}",
)
@pytest.mark.parametrize("kind", ["--stt-models", "--stt-streaming-models", "--stt-realtime-models"])
async def test_wyoming_openai_transcribes_with_a_gateway(demo_gateway, unused_tcp_port, pcm, kind):
    command = [PYTHON, "-m", "wyoming_openai", "--uri", f"tcp://127.0.0.1:{unused_tcp_port}"]
    command += ["--languages", "en", "--stt-openai-url", f"http://{demo_gateway.address}/v1"]
    command += ["--stt-openai-key", "any", kind, "whisper-1"]
    with subprocess.Popen(command) as translator:
        try:
            async with asyncio.timeout(START_S), connected(unused_tcp_port, translator) as client:
                await say(client, pcm)
                while (event := await client.read_event()).type != "transcript":
                    pass
        finally:
            translator.terminate()
    assert likeness(event.data["text"]) > 0.9


@asynccontextmanager
async def connected(port: int, process: subprocess.Popen[bytes]) -> AsyncIterator[AsyncTcpClient]:
    """Connect to a process that is about to listen."""
    client = AsyncTcpClient("127.0.0.1", port)
    while True:
        assert process.poll() is None, "it has ended"
        try:
            await client.connect()
            break
        except ConnectionError:
            await asyncio.sleep(0.05)
    try:
        yield client
    finally:
        await client.disconnect()
