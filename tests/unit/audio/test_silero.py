"""The VAD's probabilities are those of silero-vad, in any number of streams."""

from pathlib import Path

import numpy as np
import pytest
import silero_vad
import torch

import specwhisper
from specwhisper.audio.decode import decode_file
from specwhisper.audio.endpointing import FRAME_SAMPLES
from specwhisper.audio.speech import SileroVad
from specwhisper.types import SAMPLE_RATE

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"
SPEECH = ("01_phone_call.flac", "05_at_the_station.ogg")


def frames_of(name: str) -> np.ndarray:
    """Return a bundled recording, or ten seconds of silence, in frames."""
    pcm = bytes(20 * SAMPLE_RATE) if name == "silence" else b"".join(decode_file(SAMPLES / name))
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    num_frames = len(samples) // FRAME_SAMPLES
    return samples[: num_frames * FRAME_SAMPLES].reshape(num_frames, FRAME_SAMPLES)


def reference(frames: np.ndarray) -> list[float]:
    """Return the probabilities of silero-vad's own package."""
    num_threads = torch.get_num_threads()
    model = silero_vad.load_silero_vad(onnx=True)
    torch.set_num_threads(num_threads)  # it sets 1
    return [model(torch.from_numpy(frame.copy()), SAMPLE_RATE).item() for frame in frames]


@pytest.mark.parametrize("name", [*SPEECH, "silence"])
def test_probabilities_are_those_of_silero_vad(name):
    frames, stream = frames_of(name), SileroVad().open()
    probs = np.array([stream(frame) for frame in frames])
    assert np.abs(probs - reference(frames)).max() < 1e-3
    assert (probs > 0.5).mean() > 0.5 or name == "silence"


def test_streams_of_one_model_do_not_touch_each_other():
    recordings = [frames_of(name)[:100] for name in SPEECH]
    vad = SileroVad()
    alone = []
    for frames in recordings:
        stream = vad.open()
        alone.append([stream(frame) for frame in frames])
    streams = [vad.open() for _ in recordings]
    together = [
        [stream(frame) for stream, frame in zip(streams, at_once, strict=True)]
        for at_once in zip(*recordings, strict=True)
    ]
    assert [list(probs) for probs in zip(*together, strict=True)] == alone
