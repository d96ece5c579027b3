"""Decode the recordings that Python callers pass to canonical PCM."""

from __future__ import annotations

import os
from array import array as PlainArray
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.damage import Damage, Warn, Warnings
from specwhisper.audio.decode import canonical, decode_file, no_such_file
from specwhisper.audio.ffmpeg import check_track
from specwhisper.errors import InvalidAudio
from specwhisper.selection import ALL_AUDIO, Selection
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

# File names, whole files, open files, arrays and tensors of 16 kHz mono, and audio of a Hugging Face dataset.
Audio = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | NDArray[Any] | Mapping[str, Any]
WANTED = (
    "pass a file name, an open file, an array of 16 kHz mono samples, or a dict of array and sampling_rate"
)
MAX_SHOWN_ERRORS = 20  # in one sentence
Decode = Callable[[], Iterator[bytes]]
Read = Callable[[Warn, Selection], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Source:
    """A recording that can be decoded.

    Attributes
    ----------
    name : in error messages; empty if it has none.
    read : yields canonical PCM of a selection, from the beginning at each call.
    selection : what of it is decoded.
    warnings : what was missing in it, once it was decoded to its end.
    """

    name: str
    read: Read
    selection: Selection = ALL_AUDIO
    warnings: Warnings = field(default_factory=Warnings)

    def decode(self) -> Iterator[bytes]:
        return self.read(self.warnings, self.selection)

    def through(self, decode: Decode) -> Source:
        return Source(self.name, lambda _warn, _selection: decode())


def recordings_in(audio: Audio | Iterable[Audio]) -> tuple[Iterable[Source | InvalidAudio], bool]:
    """Return the source of each recording, and whether ``audio`` is a single one.

    A list, or any other sequence, is checked at once. Other iterables are checked item by item as they are
    read. An error stands for an item that isn't a recording, or a file that does not exist.
    """
    if is_recording(audio) or not isinstance(audio, Iterable):
        return [_checked(audio)], True
    items = map(_checked, audio)
    return (_of_different_files(audio, items) if isinstance(audio, Sequence) else items), False


def is_recording(audio: Any) -> bool:
    return (
        isinstance(audio, str | os.PathLike | bytes | bytearray | memoryview | PlainArray)
        or hasattr(audio, "read")
        or hasattr(audio, "__array__")
        or _is_of_dataset(audio)
    )


def decoder_of(audio: Audio) -> Decode:
    """Return what decodes a single recording."""
    recordings, is_one = recordings_in(audio)
    if not is_one:
        raise InvalidAudio("There are several recordings: pass one at a time.")
    (recording,) = recordings
    if isinstance(recording, InvalidAudio):
        raise recording
    return recording.decode


def _of_different_files(
    audio: Sequence[Any], items: Iterable[Source | InvalidAudio]
) -> list[Source | InvalidAudio]:
    """Refuse an open file that is in the list twice: both would move its position."""
    seen: set[int] = set()
    checked = []
    for given, item in zip(audio, items, strict=True):
        if hasattr(given, "read") and id(given) in seen:
            item = InvalidAudio("An open file is in the list twice: open it twice, or pass its name.")
        seen.add(id(given))
        checked.append(item)
    return checked


def check_all(recordings: Iterable[Source | InvalidAudio]) -> None:
    """Raise one error that names every item that isn't a recording or does not exist."""
    errors = [recording for recording in recordings if isinstance(recording, InvalidAudio)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        reasons = " ".join(map(str, errors[:MAX_SHOWN_ERRORS]))
        more = f" (and {len(errors) - MAX_SHOWN_ERRORS} more)" if len(errors) > MAX_SHOWN_ERRORS else ""
        raise InvalidAudio(
            f"{len(errors)} recordings cannot be read, and nothing was decoded. {reasons}{more}"
        )


def _checked(recording: Any) -> Source | InvalidAudio:
    try:
        return _source(recording)
    except InvalidAudio as error:
        return error


def _source(recording: Any) -> Source:
    if isinstance(recording, str | os.PathLike):
        if not os.path.exists(recording):
            raise no_such_file(recording)
        return Source(str(os.fspath(recording)), partial(decode_file, recording, None))
    if isinstance(recording, memoryview | PlainArray):
        view = memoryview(recording)
        recording = view.tobytes() if view.itemsize == 1 else np.asarray(view)  # a file, or samples
    if isinstance(recording, bytes | bytearray):
        return Source("", _OpenFile(BytesIO(recording)))
    if hasattr(recording, "read"):
        return Source(str(getattr(recording, "name", "")), _OpenFile(recording))
    if _is_of_dataset(recording):
        return _source_of_dataset(recording)
    if hasattr(recording, "__array__"):
        return Source("", _decoder_of_array(recording, SAMPLE_RATE))
    raise InvalidAudio(f"A recording of type {type(recording).__name__} cannot be read: {WANTED}.")


def _is_of_dataset(recording: Any) -> bool:
    """Return whether it is audio of `datasets`: a mapping, or its decoder."""
    return isinstance(recording, Mapping) or hasattr(recording, "get_all_samples")


def _source_of_dataset(recording: Any) -> Source:
    if isinstance(recording, Mapping) and "raw" in recording:  # as transformers' pipeline takes it
        recording = {"array": recording["raw"], **recording}
    if not isinstance(recording, Mapping) or recording.keys() >= {"array", "sampling_rate"}:
        name = str(recording.get("path") or "") if isinstance(recording, Mapping) else ""
        return Source(name, _decoder_of_array(recording["array"], recording["sampling_rate"]))
    if recording.get("bytes") is not None:
        return _source(recording["bytes"])
    if recording.get("path") is not None:
        return _source(recording["path"])
    raise InvalidAudio(f"A recording with {', '.join(map(str, recording))} cannot be read: {WANTED}.")


class _OpenFile:
    """Decodes an open file from its beginning; data of a pipe is read and kept."""

    def __init__(self, file: Any) -> None:
        try:
            is_text = not isinstance(file.read(0), bytes)
        except (TypeError, ValueError, OSError) as error:
            raise InvalidAudio(f"An open file cannot be read: {error}.") from error
        if is_text:
            raise InvalidAudio("A file that is open as text holds no recording: open it with mode 'rb'.")
        self._file = file

    def __call__(self, warn: Warn, selection: Selection) -> Iterator[bytes]:
        try:
            if not (hasattr(self._file, "seekable") and self._file.seekable()):
                self._file = BytesIO(self._file.read())
            self._file.seek(0)
        except (TypeError, ValueError, OSError) as error:
            raise InvalidAudio(f"An open file cannot be read: {error}.") from error
        yield from decode_file(self._file, None, warn, selection)


def _decoder_of_array(array: Any, sample_rate: Any) -> Read:
    if hasattr(array, "detach"):  # a tensor: numpy knows neither devices nor gradients nor bfloat16
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array
    samples = np.asarray(array)
    if samples.ndim != 1:
        raise InvalidAudio(f"An array of shape {samples.shape} is not a recording: {WANTED}.")
    return partial(_pieces, samples, sample_rate)


def _pieces(samples: NDArray[Any], sample_rate: int, warn: Warn, selection: Selection) -> Iterator[bytes]:
    check_track(selection, 1, "The audio")
    starts = range(0, len(samples), WINDOW_SAMPLES)
    pieces = (_as_floats(samples[start : start + WINDOW_SAMPLES]) for start in starts)
    blocks = ((sample_rate, piece[:, None], None) for piece in pieces)
    yield from canonical(blocks, Damage("The audio", warn), selection)


def _as_floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return samples in -1..1.

    Integers fill the range of their type, as in WAV files: those of 8 bits without a sign have 128 for 0.
    """
    kind, num_bits = samples.dtype.kind, samples.dtype.itemsize * 8
    if kind == "f":
        return samples.astype(np.float32, copy=False)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - np.float32(128)) / np.float32(128)
    if kind != "i" or num_bits > 32:
        raise InvalidAudio(
            f"Samples of type {samples.dtype} are not supported: pass floats between -1 and 1, or int16, "
            "int32 or uint8."
        )
    return samples.astype(np.float32) / np.float32(2 ** (num_bits - 1))
