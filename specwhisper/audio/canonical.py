"""Convert audio to canonical PCM: 16 kHz, mono, signed 16-bit little-endian.

Client, servers and test oracles all use this module, so a recording has the same samples everywhere, however
it was cut into pieces on its way.
"""

from __future__ import annotations

from numbers import Real

import numpy as np
import soxr
from numpy.typing import NDArray

from specwhisper.audio.channels import Mixer
from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE

MIN_SAMPLE_RATE = 1_000
MAX_SAMPLE_RATE = 768_000
MAX_CHANNELS = 64
MAX_AMPLITUDE = 16  # the largest float, 24 dB above full scale: larger ones are unscaled integers
BYTES_PER_SAMPLE = 2
SCALE = np.float32(32768)

Samples = NDArray[np.float32] | NDArray[np.int16]


def floats(pcm: bytes) -> NDArray[np.float32]:
    """Return the samples of canonical PCM in -1..1."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / SCALE


class CanonicalStream:
    """Converts audio of one rate and channel count to canonical PCM, piece by piece.

    Channels are mixed, then resampled by soxr (HQ), then rounded: ``x * 32768`` to the nearest integer,
    halves to the even one, clipped to 16 bits. 16 kHz mono s16 stays the same, byte for byte.

    ``mixer``: makes one channel of several; by default their average.
    """

    def __init__(self, sample_rate: int, num_channels: int = 1, mixer: Mixer | None = None) -> None:
        if not _is_whole(sample_rate, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE):
            raise InvalidAudio(
                f"A sample rate of {sample_rate} Hz is not supported: it must be a whole number between "
                f"{MIN_SAMPLE_RATE} and {MAX_SAMPLE_RATE} Hz."
            )
        if not _is_whole(num_channels, 1, MAX_CHANNELS):
            raise InvalidAudio(f"Audio of {num_channels} channels is not supported: 1 to {MAX_CHANNELS} are.")
        self._sample_rate = int(sample_rate)
        self._num_channels = int(num_channels)
        self._mixer = mixer or Mixer()
        self._mixer.check(self._num_channels)
        self._partial = b""
        self._resampler = None
        if sample_rate != SAMPLE_RATE:
            rates = self._sample_rate, SAMPLE_RATE
            self._resampler = soxr.ResampleStream(*rates, 1, dtype="float32", quality="HQ")

    def push(self, samples: bytes | Samples) -> bytes:
        """Convert the next samples, channels interleaved; return the bytes so far.

        Bytes are s16le and may break off anywhere, even within a sample; arrays are float32 in -1..1 or
        int16, flat or ``[frames, channels]``, and hold whole frames. Floats that are not finite are silence.

        Raise :class:`InvalidAudio` for samples of another type, half a frame in an array, floats far
        above full scale, and a channel that does not exist.
        """
        if isinstance(samples, bytes | bytearray | memoryview):
            samples = self._whole_frames(samples)
        if samples.dtype not in (np.float32, np.int16):
            raise InvalidAudio(f"Samples of type {samples.dtype} are not supported: float32 and int16 are.")
        if samples.size % self._num_channels:
            raise InvalidAudio(
                f"{samples.size} samples are not whole frames of {self._num_channels} channels."
            )
        if self._resampler is None and self._num_channels == 1 and samples.dtype == np.int16:
            return samples.astype("<i2", copy=False).tobytes()
        mono = self._mixer(_to_floats(samples.reshape(-1, self._num_channels)), self._sample_rate)
        return _quantise(mono if self._resampler is None else self._resampler.resample_chunk(mono))

    def finish(self) -> bytes:
        """End the audio, without half a frame at its end; return the last canonical bytes."""
        if self._resampler is None:
            return b""
        return _quantise(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))

    def _whole_frames(self, data: bytes | bytearray | memoryview) -> NDArray[np.int16]:
        data = self._partial + data if self._partial else bytes(data)
        end = len(data) - len(data) % (self._num_channels * BYTES_PER_SAMPLE)
        self._partial = data[end:]
        return np.frombuffer(data, "<i2", count=end // BYTES_PER_SAMPLE).astype(np.int16, copy=False)


def _is_whole(number: float, least: int, most: int) -> bool:
    return isinstance(number, Real) and least <= number <= most and number == int(number)


def _to_floats(frames: Samples) -> NDArray[np.float32]:
    samples = frames.astype(np.float32, copy=False)
    if frames.dtype == np.int16:
        return samples / SCALE
    loudest = np.abs(samples).max(initial=0)
    if not np.isfinite(loudest):  # one would spread through the resampler
        samples = np.where(np.isfinite(samples), samples, np.float32(0))
        loudest = np.abs(samples).max(initial=0)
    if loudest > MAX_AMPLITUDE:
        raise InvalidAudio(
            f"The audio holds a sample of {loudest:g}, but floats lie between -1 and 1: divide numbers of 16 "
            "bits by 32768, or pass them as int16."
        )
    return samples


def _quantise(samples: NDArray[np.float32]) -> bytes:
    """Round -1..1 to s16le; the scale is a power of two, so 16-bit samples stay unchanged."""
    return np.rint(samples * 32768).clip(-32768, 32767).astype("<i2").tobytes()
