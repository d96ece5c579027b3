"""FLAC on the wire: only the agreed format, and no more samples than requested."""

from io import BytesIO

import numpy as np
import pytest
import soundfile

from specwhisper.errors import InvalidAudio
from specwhisper.wire import flac


def encoded(rate=16_000, shape=(1_000,), subtype="PCM_16", container="FLAC"):
    stream = BytesIO()
    soundfile.write(stream, np.zeros(shape, np.int16), rate, format=container, subtype=subtype)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (encoded(rate=8_000), "8000 Hz"),
        (encoded(shape=(1_000, 2)), "2 channel"),
        (encoded(subtype="PCM_24"), "PCM_24"),
        (encoded(container="WAV"), "not a FLAC stream"),
        (b"", "not a FLAC stream"),
        (b"fLaC and then nonsense", "cannot be decoded"),
        (encoded()[:-8], "cannot be decoded"),
    ],
)
def test_other_formats_are_refused(data, sentence):
    with pytest.raises(InvalidAudio, match=sentence):
        flac.decode(data, max_samples=1_000)


def test_one_sample_over_the_limit_is_refused():
    assert flac.decode(encoded(), max_samples=1_000) == bytes(2_000)
    with pytest.raises(InvalidAudio, match="more than 999 samples"):
        flac.decode(encoded(), max_samples=999)


def test_an_hour_of_silence_in_a_few_bytes_is_not_unpacked():
    bomb = encoded(shape=(16_000 * 60 * 5,))
    assert len(bomb) < 100_000  # it passes every limit on message sizes
    with pytest.raises(InvalidAudio, match="more than 480000 samples"):
        flac.decode(bomb, max_samples=480_000)


def test_a_forged_length_allocates_nothing():
    forged = bytearray(encoded())
    forged[21] |= 0x0F  # STREAMINFO's total samples: 36 bits from the low half of byte 21 on
    forged[22:26] = b"\xff" * 4
    with pytest.raises(InvalidAudio):
        flac.decode(bytes(forged), max_samples=999)
