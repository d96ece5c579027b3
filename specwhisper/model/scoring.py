"""Score rows of tokens with a decoder: from tokens to choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specwhisper.model.arrays import Array, Device, array_namespace, softmax, to_device
from specwhisper.model.choosing import ProbeResult, Row, Scores, choose
from specwhisper.model.rules import Allowed, DecodingRules
from specwhisper.transcription.vocabulary import Vocabulary


class Probing:
    """Reads silence and language from the logits after ``<|startoftranscript|>``."""

    def __init__(self, vocabulary: Vocabulary, device: Device) -> None:
        self._vocabulary = vocabulary
        self._language_ids = to_device(np.array(list(vocabulary.languages.values()), np.int64), device)

    def probs(self, logits: Array) -> Array:
        """Return each row's probabilities: of every language, then of silence."""
        probs = [softmax(logits[:, self._language_ids])]
        if self._vocabulary.no_speech is not None:
            probs.append(softmax(logits)[:, self._vocabulary.no_speech, None])
        return array_namespace(logits).concat(probs, axis=1)

    def result(self, probs: Sequence[float]) -> ProbeResult:
        """Return the values of a row of :meth:`probs`."""
        no_speech_prob = None if self._vocabulary.no_speech is None else probs[-1]
        return ProbeResult(no_speech_prob, dict(zip(self._vocabulary.languages, probs, strict=False)))


def allowed_after(row: Row, rules: DecodingRules) -> list[Allowed]:
    """Return what may follow each of a row's scored tokens."""
    return list(
        rules.allowed(
            row.generated,
            row.candidates,
            timestamps=row.timestamps,
            max_initial_timestamp=row.max_initial_timestamp,
        )
    )


class LogitsScorer:
    """Scores rows by the logits of a decoder with slots.

    Parameters
    ----------
    append : :meth:`specwhisper.model.backend.Backend.append`.
    """

    def __init__(self, append: Callable[..., Array], rules: DecodingRules, probing: Probing) -> None:
        self._append = append
        self._rules = rules
        self._probing = probing

    def __call__(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate."""
        counts = [row.num_candidates + 1 for row in rows]
        probes = [(i, row.probe) for i, row in enumerate(rows) if row.probe is not None]
        logits = self._append([row.slot for row in rows], [row.tokens for row in rows], counts, probes)
        logits, probed = logits[: sum(counts)], logits[sum(counts) :]
        probs = self._probing.probs(probed) if probes else None  # read below, while a GPU computes
        self._rules.apply(logits, [state for row in rows for state in allowed_after(row, self._rules)])
        scores = choose(rows, logits)
        if probs is not None:
            for (i, _), values in zip(probes, probs.tolist(), strict=True):
                scores[i] = replace(scores[i], probe_result=self._probing.result(values))
        return scores
