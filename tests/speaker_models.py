"""Tiny models for sherpa-onnx's diarization, which distinguish low and high tones, and such tones.

They have the inputs, outputs and metadata of pyannote's segmentation and of wespeaker's embeddings. The
segmentation compares the mean of the samples with that of their differences, which is larger in a high tone:
its local speakers are "low" and "high". The embedding is the mean of sherpa-onnx's mel features.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from onnx import helper

from tests.sherpa_model import floats, save_onnx

RATE = 16_000
LOW_HZ, HIGH_HZ = 200.0, 2_000.0
SEGMENTATION = {
    "model_type": "pyannote-segmentation-3.0",
    "version": "1",
    "num_speakers": "3",
    "powerset_max_classes": "2",
    "num_classes": "7",
    "sample_rate": str(RATE),
    "window_size": "160000",
    "receptive_field_size": "991",
    "receptive_field_shift": "270",
}
EMBEDDING = {
    "framework": "wespeaker",
    "language": "English",
    "url": "",
    "comment": "",
    "sample_rate": str(RATE),
    "output_dim": "80",
    "normalize_samples": "1",
    "feature_normalize_type": "",
}
IMPOSSIBLE = -1e6  # the logit of classes of several speakers


def save_models(folder: Path) -> Path:
    """Write both models into a folder, the segmentation into one of its own, as it is published."""
    (folder / "segmentation").mkdir(parents=True)
    _save_segmentation(folder / "segmentation" / "model.onnx")
    _save_embedding(folder / "voices.onnx")
    return folder


def tones(spans: Sequence[tuple[float, float, float]], length_s: float) -> NDArray[np.float32]:
    """Return silence with tones; each has a start and an end in seconds, and a frequency."""
    times_s = np.arange(round(length_s * RATE)) / RATE
    samples = np.zeros_like(times_s)
    for start_s, end_s, frequency in spans:
        is_in = (times_s >= start_s) & (times_s < end_s)
        samples[is_in] = 0.3 * np.sin(2 * np.pi * frequency * times_s[is_in])
    return samples.astype(np.float32)


def workers() -> list[psutil.Process]:
    """Return the processes of this one that find speakers."""
    running = (
        child for child in psutil.Process(os.getpid()).children() if child.status() != psutil.STATUS_ZOMBIE
    )
    return [child for child in running if "specwhisper_speakers.worker" in child.cmdline()]


def _save_segmentation(path: Path) -> None:
    samples_and_differences = np.array([[[0, 1]], [[-1, 1]]], np.float32)
    weights = np.zeros((2, 7), np.float32)
    weights[:, 1], weights[:, 2] = (3_000, -10_000), (-3_000, 10_000)
    bias = np.array([20, 0, 0, *[IMPOSSIBLE] * 4], np.float32)  # silence, low, high
    save_onnx(
        path,
        [
            helper.make_node("Conv", ["x", "kernel"], ["both"], pads=[1, 0]),
            helper.make_node("Abs", ["both"], ["sizes"]),
            helper.make_node("AveragePool", ["sizes"], ["means"], kernel_shape=[991], strides=[270]),
            helper.make_node("Transpose", ["means"], ["frames"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["frames", "weights"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["y"]),
        ],
        inputs=[floats("x", ["N", 1, "T"])],
        outputs=[floats("y", ["N", "F", 7])],
        weights={"kernel": samples_and_differences, "weights": weights, "bias": bias},
        **SEGMENTATION,
    )


def _save_embedding(path: Path) -> None:
    save_onnx(
        path,
        [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
            helper.make_node("ReduceMean", ["mean"], ["level"], axes=[1], keepdims=1),
            helper.make_node("Sub", ["mean", "level"], ["y"]),
        ],
        inputs=[floats("x", ["N", "T", 80])],
        outputs=[floats("y", ["N", 80])],
        weights={},
        **EMBEDDING,
    )
