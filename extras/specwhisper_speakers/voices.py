"""Recognise the voices of live audio: the clusters grow one voice at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.speakers import label

DEFAULT_THRESHOLD = 0.5  # of the cosine distance between two voices
MIN_NEW_S = 1.0  # of a new speaker's speech: the embedding of less is unsure


class Voices:
    """The speakers so far, each with the mean embedding of its speech.

    A name once given stays: clusters are never merged or split.

    Parameters
    ----------
    threshold : of the cosine distance between a voice and the nearest speaker, from which it is another one.
    max_speakers : above it, a voice is that of the nearest speaker.
    """

    def __init__(self, threshold: float = DEFAULT_THRESHOLD, max_speakers: int | None = None) -> None:
        if max_speakers is not None and max_speakers < 1:
            raise InvalidRequest(f"max_speakers is {max_speakers}: it must be at least 1, or left out.")
        self._threshold = threshold
        self._max_speakers = max_speakers
        self._sums: list[NDArray[np.float64]] = []  # of unit embeddings, weighted by their speech

    def name_of(self, embedding: NDArray[np.float64], speech_s: float) -> str:
        """Return the speaker of a voice, and learn from it.

        Parameters
        ----------
        embedding : of any length, the same for all voices.
        speech_s : seconds of speech that it was computed from.
        """
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
    """Return an embedding scaled to length 1; that of zeros stays."""
    values = np.asarray(embedding, np.float64)
    return values / max(float(np.linalg.norm(values)), 1e-12)
