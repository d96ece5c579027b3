"""Whatever a Python caller hands over as a recording, as canonical PCM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

# File names, whole files, open files, arrays and tensors of 16 kHz mono, and rows of a Hugging Face dataset.
Audio = str | os.PathLike[str] | bytes | BinaryIO | NDArray[Any] | Mapping[str, Any]
WANTED = (
    "give a file name, an open file, an array of 16 kHz mono samples, or a dict of array and sampling_rate"
)


def recordings_in(audio: Audio | Sequence[Audio]) -> tuple[list[Callable[[], Iterator[bytes]]], bool]:
    """Give what decodes each recording, from its beginning each time it is called, and whether it was one."""
    is_one = (
        isinstance(audio, str | os.PathLike | bytes | bytearray | Mapping)
        or hasattr(audio, "read")
        or hasattr(audio, "__array__")
    )
    if not (is_one or isinstance(audio, Sequence)):
        raise InvalidAudio(f"A recording of type {type(audio).__name__} cannot be read: {WANTED}.")
    recordings: Sequence[Any] = [audio] if is_one else audio  # type: ignore[assignment]
    return [_decoder(recording) for recording in recordings], is_one


def _decoder(recording: Any) -> Callable[[], Iterator[bytes]]:
    if isinstance(recording, str | os.PathLike):
        return partial(decode_file, recording)
    if isinstance(recording, bytes | bytearray):
        return partial(_decode_again, BytesIO(recording))
    if hasattr(recording, "read"):
        is_seekable = hasattr(recording, "seekable") and recording.seekable()
        return partial(_decode_again, recording if is_seekable else BytesIO(recording.read()))
    sample_rate = SAMPLE_RATE
    if isinstance(recording, Mapping):
        if not recording.keys() >= {"array", "sampling_rate"}:
            raise InvalidAudio(f"A recording with {', '.join(map(str, recording))} cannot be read: {WANTED}.")
        recording, sample_rate = recording["array"], int(recording["sampling_rate"])
    if not hasattr(recording, "__array__"):
        raise InvalidAudio(f"A recording of type {type(recording).__name__} cannot be read: {WANTED}.")
    samples = np.asarray(recording.cpu() if hasattr(recording, "cpu") else recording)
    if samples.ndim != 1:
        raise InvalidAudio(f"An array of shape {samples.shape} is no recording: {WANTED}.")
    return partial(_pieces, samples, sample_rate)


def _decode_again(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    yield from decode_file(file)


def _pieces(samples: NDArray[Any], sample_rate: int) -> Iterator[bytes]:
    if np.issubdtype(samples.dtype, np.floating):
        samples = samples.astype(np.float32, copy=False)
    stream = CanonicalStream(sample_rate)
    for start in range(0, len(samples), WINDOW_SAMPLES):
        yield stream.push(samples[start : start + WINDOW_SAMPLES])
    yield stream.finish()
