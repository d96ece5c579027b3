"""Name speakers: by samples of their voices, and others by letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.inputs import Audio, decoder_of
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.transcription.speakers import Turn, label
from specwhisper.types import SAMPLE_RATE

DEFAULT_THRESHOLD = 0.5  # cosine distance at which two voices are two speakers
MIN_NEW_S = 1.0  # a new speaker's least speech: the embedding of less is unsure
MIN_SAMPLE_S = 0.5  # embeddings of less are unsure; OpenAI asks for 2 to 10 s
MAX_SAMPLE_S = 30.0  # more makes an embedding no better


class Voices:
    """The speakers of live audio so far, each with the mean embedding of its speech.

    A name once given stays: clusters grow one voice at a time, and are never merged or split.

    A voice at ``threshold`` or more from the nearest speaker is another one, until there are
    ``max_speakers``.
    """

    def __init__(self, threshold: float = DEFAULT_THRESHOLD, max_speakers: int | None = None) -> None:
        if max_speakers is not None and max_speakers < 1:
            raise InvalidRequest(f"max_speakers is {max_speakers}: it must be at least 1, or left out.")
        self._threshold = threshold
        self._max_speakers = max_speakers
        self._sums: list[NDArray[np.float64]] = []  # unit embeddings, weighted by their speech

    def name_of(self, embedding: NDArray[np.float64], speech_s: float) -> str:
        """Return the speaker of a voice, and learn from it; ``speech_s`` is how much speech it is from."""
        voice = unit(embedding)
        distances = [1.0 - float(voice @ total) / float(np.linalg.norm(total)) for total in self._sums]
        nearest = int(np.argmin(distances)) if distances else 0
        if distances and distances[nearest] < self._threshold:
            self._sums[nearest] += voice * speech_s
            return label(nearest)
        if distances and (speech_s < MIN_NEW_S or len(distances) == self._max_speakers):
            return label(nearest)  # a guess, of which nothing is learnt
        self._sums.append(voice * speech_s)
        return label(len(distances))


def unit(embedding: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(embedding, np.float64)
    return values / max(float(np.linalg.norm(values)), 1e-12)


def sample_of(name: str, audio: Audio) -> bytes:
    """Return the first ``MAX_SAMPLE_S`` of a speaker's sample as canonical PCM."""
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
    """Return the names of known speakers by their numbers: each has the name of the nearest sample.

    ``voices`` and ``samples`` are embeddings. A speaker at ``threshold`` or more from a sample is another.
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
    """Return turns in their order with named speakers: those not known are A, B, ... as they first speak.

    ``turns`` have start and end in seconds, and the number of a speaker.
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
