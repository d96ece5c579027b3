"""How speech sounds: clean, in noise, by telephone."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from io import BytesIO

import numpy as np
import soundfile
import soxr
from numpy.random import Generator
from numpy.typing import NDArray

from experiments.common.audio.samples import Sample
from specwhisper.audio.decode import G711, decode_g711
from specwhisper.audio.speech import find_speech
from specwhisper.selection import VadOptions
from specwhisper.types import SAMPLE_RATE

SOUND = VadOptions(min_silence_duration_ms=200, min_speech_duration_ms=100, speech_pad_ms=0)
SNR_DB = 10.0
TELEPHONE_RATE = 8_000
NUM_TALKERS = 6  # talkers in the babble
Samples = NDArray[np.float64]


class Condition(StrEnum):
    CLEAN = "clean"
    BABBLE = "10 dB babble"
    TELEPHONE = "telephone"


def in_condition(samples: Sequence[Sample], condition: Condition, random: Generator) -> list[Sample]:
    if condition is Condition.CLEAN:
        return list(samples)
    speech = [samples_of(each.pcm) for each in samples]
    made = []
    for index, (sample, each) in enumerate(zip(samples, speech, strict=True)):
        if condition is Condition.TELEPHONE:
            changed = by_telephone(each)
        else:
            others = [other for place, other in enumerate(speech) if place != index]
            changed = with_noise(each, babble(others, len(each), random))
        made.append(Sample.of(f"{sample.name}, {condition}", pcm_of(changed)))
    return made


def pink_noise(length: int, random: Generator) -> Samples:
    spectrum = np.fft.rfft(random.standard_normal(length))
    return np.fft.irfft(spectrum / np.sqrt(np.arange(1, len(spectrum) + 1)), length)


def babble(speech: Sequence[Samples], length: int, random: Generator) -> Samples:
    """Return several talkers at once, each equally loud."""
    chosen = random.choice(len(speech), min(NUM_TALKERS, len(speech)), replace=False)
    talkers = [np.roll(np.resize(speech[index], length), random.integers(length)) for index in chosen]
    return np.sum([each / each.std() for each in talkers], axis=0)


def with_noise(samples: Samples, noise: Samples) -> Samples:
    spans = [(round(start_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)) for start_s, end_s in sound(samples)]
    speech = np.concatenate([samples[start:end] for start, end in spans])
    return samples + noise * float(speech.std() / noise.std() * 10 ** (-SNR_DB / 20))


def by_telephone(samples: Samples) -> Samples:
    narrow, coded = soxr.resample(samples, SAMPLE_RATE, TELEPHONE_RATE), BytesIO()
    soundfile.write(
        coded, np.frombuffer(pcm_of(narrow), "<i2"), TELEPHONE_RATE, format="RAW", subtype=G711.MULAW
    )
    received = samples_of(decode_g711(coded.getvalue(), G711.MULAW))
    wide: Samples = soxr.resample(received, TELEPHONE_RATE, SAMPLE_RATE)
    return wide


def sound(samples: Samples) -> list[tuple[float, float]]:
    """Return where there is speech, in seconds, by voice activity."""
    spans = find_speech([pcm_of(samples)], SOUND).spans
    return [(span.start / SAMPLE_RATE, span.stop / SAMPLE_RATE) for span in spans]


def samples_of(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, "<i2").astype(np.float64)


def pcm_of(samples: Samples) -> bytes:
    return np.clip(np.rint(samples), -32768, 32767).astype("<i2").tobytes()
