"""Name speakers: by samples of their voices, and others by letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

import numpy as np
from numpy.typing import ArrayLike

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.inputs import Audio, decoder_of
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.transcription.speakers import Turn, label
from specwhisper.types import SAMPLE_RATE
from specwhisper_speakers.voices import unit

MIN_SAMPLE_S = 0.5  # embeddings of less are unsure; OpenAI asks for 2 to 10 s
MAX_SAMPLE_S = 30.0  # more makes an embedding no better


def sample_of(name: str, audio: Audio) -> bytes:
    """Return the first ``MAX_SAMPLE_S`` of a speaker's sample as canonical PCM.

    Raises
    ------
    InvalidRequest : if the name is empty.
    InvalidAudio : if the sample cannot be decoded, or is shorter than ``MIN_SAMPLE_S``.
    """
    if not name.strip():
        raise InvalidRequest("The name of a speaker is empty: name whose voice the sample has.")
    max_bytes = int(MAX_SAMPLE_S * SAMPLE_RATE) * BYTES_PER_SAMPLE
    pcm = bytearray()
    try:
        for piece in decoder_of(audio)():
            pcm += piece
            if len(pcm) >= max_bytes:
                break
    except InvalidAudio as error:
        raise InvalidAudio(f"The sample of speaker '{name}' cannot be used. {error}") from error
    length_s = len(pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE
    if length_s < MIN_SAMPLE_S:
        raise InvalidAudio(
            f"The sample of speaker '{name}' has {length_s:.2g} s: it needs {MIN_SAMPLE_S:g} s or more of "
            "this voice alone."
        )
    return bytes(pcm[:max_bytes])


def names_of(
    voices: Mapping[int, ArrayLike], samples: Mapping[str, ArrayLike], threshold: float
) -> dict[int, str]:
    """Return the names of the speakers that are known, by their numbers.

    A speaker has the name of the nearest sample. Two that have the same one are one person.

    Parameters
    ----------
    voices, samples : embeddings of any length, the same for all, by a speaker's number and by name.
    threshold : of the cosine distance between a speaker and a sample, from which they are not the same.
    """
    if not samples:
        return {}
    names, known = list(samples), np.stack([unit(sample) for sample in samples.values()])
    found = {}
    for number, voice in voices.items():
        distances = 1.0 - known @ unit(voice)
        nearest = int(distances.argmin())
        if distances[nearest] < threshold:
            found[number] = names[nearest]
    return found


def named(
    turns: Iterable[tuple[float, float, int]], known: Mapping[int, str] | None = None
) -> tuple[Turn, ...]:
    """Return turns in their order, with names for the speakers.

    Those that are not known are A, B, ... in the order in which they first speak.

    Parameters
    ----------
    turns : start and end in seconds, and the number of a speaker.
    known : names of speakers by their numbers.
    """
    names = dict(known or {})
    taken = frozenset(names.values())
    free = (name for name in map(label, count()) if name not in taken)
    found = []
    for start_s, end_s, number in sorted(turns):
        if number not in names:
            names[number] = next(free)
        found.append(Turn(round(start_s, 3), round(end_s, 3), names[number]))
    return tuple(found)
