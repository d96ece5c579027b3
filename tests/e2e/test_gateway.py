"""A gateway's process for the bundled pair returns the text of target-only."""

import base64
import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import openai
import pytest
import soundfile
import soxr

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.processes import Server, run_client

SAMPLES = DEMO_FOLDER / "samples"
RECORDING = SAMPLES / "01_phone_call.flac"
SPOKEN_TEXT = json.loads((SAMPLES / "metadata.jsonl").read_text().splitlines()[0])["text"]
# Options that temperature 0 means in OpenAI's API.
AS_OPENAI = (
    *("--temperature-increment-on-fallback", "0.2", "--compression-ratio-threshold", "2.4"),
    *("--logprob-threshold", "-1", "--no-speech-threshold", "0.6", "--padding", "zero"),
)

pytestmark = pytest.mark.timeout(600)


def settings(gateway: Server) -> dict[str, Any]:
    return {"base_url": f"http://{gateway.address}/v1", "api_key": "any", "max_retries": 0}


@pytest.fixture
def api(demo_gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**settings(demo_gateway)) as api:
        yield api


@pytest.fixture(scope="module")
def target_alone(demo_server, tmp_path_factory) -> dict[str, Any]:
    """Return the command line's target-only text."""
    folder = tmp_path_factory.mktemp("target-only")
    command = ("transcribe", RECORDING, "--server", demo_server, "--quiet", *AS_OPENAI)
    options = ("--mode", "target-only", "--language", "en", "--word-timestamps", "--output-dir", folder)
    status, _, err = run_client(*command, *options, "--output-format", "verbose_json")
    assert (status, err) == (0, "")
    return json.loads((folder / f"{RECORDING.stem}.json").read_text())


def test_the_text_is_the_targets(api, target_alone):
    reply = api.audio.transcriptions.create(
        file=RECORDING,
        model="demo-target",
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert reply.text == target_alone["text"]
    assert [segment.tokens for segment in reply.segments] == [s["tokens"] for s in target_alone["segments"]]
    words = [(word.word, word.start, word.end) for word in reply.words]
    assert words == [(word["word"], word["start"], word["end"]) for word in target_alone["words"]]
    assert reply.duration == target_alone["duration"]


@pytest.mark.parametrize("turn_detection", [None, {"type": "server_vad", "silence_duration_ms": 300}])
async def test_realtime(demo_gateway, turn_detection):
    """Deltas join to each item's transcript, and the items to the spoken text."""
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    pcm = soxr.resample(samples, rate, 24_000).astype("<i2").tobytes()
    audio_input = {"transcription": {"language": "en"}, "turn_detection": turn_detection}
    deltas: dict[str, str] = defaultdict(str)
    completed: dict[str, str] = {}
    async with (
        openai.AsyncOpenAI(**settings(demo_gateway)) as api,
        api.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        await connection.session.update(session={"type": "transcription", "audio": {"input": audio_input}})
        for start in range(0, len(pcm), 4_800):
            await connection.input_audio_buffer.append(
                audio=base64.b64encode(pcm[start : start + 4_800]).decode()
            )
        await connection.input_audio_buffer.commit()
        while "that you called" not in " ".join(completed.values()):
            event = await connection.recv()
            if event.type.endswith("transcription.delta"):
                deltas[event.item_id] += event.delta
            if event.type.endswith("transcription.completed"):
                completed[event.item_id] = event.transcript
            assert event.type != "error"
    assert deltas == completed
    assert (len(completed) == 1) == (turn_detection is None)
    said = SequenceMatcher(None, " ".join(completed.values()), SPOKEN_TEXT)
    assert said.ratio() > 0.9


def test_open_requests_complete_after_sigterm(demo_server):
    gateway = Server("specwhisper_gateway", "--port", "0", "--server", demo_server)
    try:
        with openai.OpenAI(**settings(gateway)) as api:
            stream = api.audio.transcriptions.create(
                file=RECORDING, model="whisper-1", language="en", stream=True
            )
            gateway.send_signal(signal.SIGTERM)
            assert [event.type for event in stream][-1] == "transcript.text.done"
        status, _, _ = gateway.wait()
        assert status == 0
        assert [event["message"] for event in gateway.events][-1] == "stopped"
        assert {"answered", "ready", "draining"} <= {event["message"] for event in gateway.events}
    finally:
        gateway.end()


def test_a_request_that_is_too_large_takes_no_memory(demo_gateway):
    def body() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        yield from (b"0" * 65_536 for _ in range(500_000_000 // 65_536))

    with openai.DefaultHttpxClient(base_url=f"http://{demo_gateway.address}") as http:
        before_bytes = peak_bytes(demo_gateway)  # once it is ready, and has an address
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        reply = http.post("/v1/audio/transcriptions", content=body(), headers=headers)
    assert reply.status_code == 413
    assert peak_bytes(demo_gateway) - before_bytes < 16_000_000


def peak_bytes(server: Server) -> int:
    """Return the most memory that a process has used."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
