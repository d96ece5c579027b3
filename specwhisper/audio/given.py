"""Whatever a Python caller hands over as a recording, as canonical PCM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import CanonicalStream
from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

# File names, whole files, open files, arrays and tensors of 16 kHz mono, and audio of a Hugging Face dataset.
Audio = str | os.PathLike[str] | bytes | BinaryIO | NDArray[Any] | Mapping[str, Any]
WANTED = (
    "give a file name, an open file, an array of 16 kHz mono samples, or a dict of array and sampling_rate"
)
Decode = Callable[[], Iterator[bytes]]


def recordings_in(audio: Audio | Sequence[Audio]) -> tuple[list[Decode], bool]:
    """Give what decodes each recording, from its beginning each time it is called, and whether it was one."""
    is_one = (
        isinstance(audio, str | os.PathLike | bytes | bytearray)
        or hasattr(audio, "read")
        or hasattr(audio, "__array__")
        or _is_of_dataset(audio)
    )
    if not (is_one or isinstance(audio, Sequence)):
        raise InvalidAudio(f"A recording of type {type(audio).__name__} cannot be read: {WANTED}.")
    recordings: Sequence[Any] = [audio] if is_one else audio  # type: ignore[assignment]
    return [_decoder(recording) for recording in recordings], is_one


def _decoder(recording: Any) -> Decode:
    if isinstance(recording, str | os.PathLike):
        return partial(decode_file, recording)
    if isinstance(recording, bytes | bytearray):
        return partial(_decode_again, BytesIO(recording))
    if hasattr(recording, "read"):
        return partial(_decode_again, _rewindable(recording))
    if _is_of_dataset(recording):
        return _decoder_of_dataset(recording)
    if hasattr(recording, "__array__"):
        return _decoder_of_array(recording, SAMPLE_RATE)
    raise InvalidAudio(f"A recording of type {type(recording).__name__} cannot be read: {WANTED}.")


def _is_of_dataset(recording: Any) -> bool:
    """Whether it is what `datasets` has for audio: a mapping, or its decoder."""
    return isinstance(recording, Mapping) or hasattr(recording, "get_all_samples")


def _decoder_of_dataset(recording: Any) -> Decode:
    if not isinstance(recording, Mapping) or recording.keys() >= {"array", "sampling_rate"}:
        return _decoder_of_array(recording["array"], recording["sampling_rate"])
    if recording.get("bytes") is not None:
        return _decoder(recording["bytes"])
    if recording.get("path") is not None:
        return _decoder(recording["path"])
    raise InvalidAudio(f"A recording with {', '.join(map(str, recording))} cannot be read: {WANTED}.")


def _rewindable(file: Any) -> BinaryIO:
    """Give a file that can go back to its beginning; what comes through a pipe is read whole."""
    try:
        content = file if hasattr(file, "seekable") and file.seekable() else BytesIO(file.read())
        is_text = not isinstance(content.read(0), bytes)
    except (TypeError, ValueError, OSError) as error:
        raise InvalidAudio(f"An open file cannot be read: {error}.") from error
    if is_text:
        raise InvalidAudio("A file that is open as text holds no recording: open it with mode 'rb'.")
    return cast(BinaryIO, content)


def _decode_again(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    yield from decode_file(file)


def _decoder_of_array(array: Any, sample_rate: Any) -> Decode:
    if hasattr(array, "detach"):  # a tensor: numpy knows neither devices nor gradients nor bfloat16
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array
    samples = np.asarray(array)
    if samples.ndim != 1:
        raise InvalidAudio(f"An array of shape {samples.shape} is no recording: {WANTED}.")
    if not isinstance(sample_rate, int | float | np.number) or isinstance(sample_rate, bool):
        raise InvalidAudio(f"sampling_rate is {sample_rate!r}: it must be the samples per second.")
    return partial(_pieces, samples, int(sample_rate))


def _pieces(samples: NDArray[Any], sample_rate: int) -> Iterator[bytes]:
    if np.issubdtype(samples.dtype, np.floating):
        samples = samples.astype(np.float32, copy=False)
    stream = CanonicalStream(sample_rate)
    for start in range(0, len(samples), WINDOW_SAMPLES):
        yield stream.push(samples[start : start + WINDOW_SAMPLES])
    yield stream.finish()
