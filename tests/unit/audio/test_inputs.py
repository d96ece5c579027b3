"""Audio that Python callers pass, and the samples that it is."""

from array import array
from typing import Any

import numpy as np
import pytest

from specwhisper.audio.inputs import MAX_SHOWN_ERRORS, check_all, decoder_of, recordings_in
from specwhisper.errors import InvalidAudio
from tests.unit.audio.test_audio_decode import encode

SAMPLES = np.array([0, 256, -256, 32512, -32768] * 400, np.int16)


def decoded(audio: Any) -> list[int]:
    return np.frombuffer(b"".join(decoder_of(audio)()), "<i2").tolist()


WAV = encode(SAMPLES, 16_000, "WAV", "PCM_16")


@pytest.mark.parametrize(
    "audio",
    [
        SAMPLES.astype(">i2"),
        SAMPLES.astype(np.int32) << 16,
        (SAMPLES >> 8).astype(np.int8),
        ((SAMPLES >> 8) + 128).astype(np.uint8),
        SAMPLES / np.float64(32768),
        memoryview(SAMPLES),
        array("h", SAMPLES.tolist()),
        {"array": SAMPLES.astype(np.int32) << 16, "sampling_rate": 16_000},
        WAV,
        bytearray(WAV),
        memoryview(WAV),
    ],
    ids=lambda audio: type(audio).__name__ + str(getattr(audio, "dtype", "")),
)
def test_the_same_samples_in_another_type(audio: Any) -> None:
    recordings, is_one = recordings_in(audio)
    assert (is_one, len(list(recordings))) == (True, 1)
    assert decoded(audio) == SAMPLES.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.bool_, np.complex64])
def test_samples_of_other_types_are_refused(dtype: type) -> None:
    with pytest.raises(InvalidAudio, match="are not supported: pass floats between -1 and 1, or int16"):
        decoded(np.zeros(9, dtype))


def test_an_error_about_many_items_stays_short() -> None:
    recordings, _ = recordings_in([0.5] * 16_000)
    with pytest.raises(InvalidAudio, match=r"^16000 recordings .* \(and 15980 more\)$") as raised:
        check_all(recordings)
    assert str(raised.value).count("of type float") == MAX_SHOWN_ERRORS
