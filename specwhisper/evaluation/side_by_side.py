"""Transcribe recordings with the target alone and with the pair, and compare."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.audio.inputs import recordings_in
from specwhisper.errors import InvalidAudio
from specwhisper.evaluation.references import Reference
from specwhisper.evaluation.scoring import ErrorRates, error_rates
from specwhisper.languages import language_code
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription


@dataclass(slots=True)
class Arm:
    """One way to transcribe; ``seconds`` are the times of its batches."""

    name: str
    texts: list[str] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)

    @property
    def elapsed_s(self) -> float:
        """Time of all batches."""
        return sum(self.seconds)

    def take(self, results: Sequence[Transcription], elapsed_s: float) -> None:
        """Add the results of a batch."""
        self.seconds.append(elapsed_s)
        for result in results:
            self.texts.append(result.text)
            self.tokens.append(tuple(token for segment in result.segments for token in segment.tokens))
            if result.stats is not None:
                self.statistics.add(result.stats)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of both arms over the same recordings."""

    references: list[str]
    duration_s: float
    standard: Arm
    speculative: Arm
    language: str

    @property
    def speed_up(self) -> float:
        """Time of the target alone over time of the pair."""
        return self.standard.elapsed_s / self.speculative.elapsed_s if self.speculative.elapsed_s else 0.0

    @property
    def num_identical(self) -> int:
        """Recordings of which both wrote the same tokens."""
        return sum(a == b for a, b in zip(self.standard.tokens, self.speculative.tokens, strict=True))

    def rates(self, arm: Arm) -> ErrorRates:
        """Return the error rates of an arm."""
        return error_rates(self.references, arm.texts, self.language)


def compare(
    pair: SpeculativeWhisper,
    references: Iterable[Reference],
    *,
    batch_size: int = 1,
    on_progress: Callable[[int], None] = lambda done: None,
    on_bad: Callable[[Reference, InvalidAudio], None] | None = None,
    **options: Any,
) -> Comparison:
    """Transcribe each batch with both, in alternating order.

    The first batch is transcribed once more beforehand, untimed, because first calls take longer.

    Parameters
    ----------
    on_progress : called with the number of recordings done.
    on_bad : called with each recording that cannot be decoded, which is left out; without it, the error is
        raised.
    options : as of :meth:`SpeculativeWhisper.transcribe`.
    """
    alone = pair.without_draft()
    standard, speculative = Arm("target alone"), Arm("speculative")
    texts: list[str] = []
    languages: Counter[str] = Counter()
    duration_s, language = 0.0, language_code(options.get("language")) or ""
    for number, batch in enumerate(_batches(_good(references, on_bad), batch_size)):
        ways = [(alone, standard), (pair, speculative)]
        if number == 0:
            for model, _ in ways:
                model.transcribe([reference.audio for reference in batch], progress=False, **options)
        for model, arm in ways if number % 2 == 0 else reversed(ways):
            started_s = time.perf_counter()
            results = model.transcribe([reference.audio for reference in batch], progress=False, **options)
            arm.take(results, time.perf_counter() - started_s)
        duration_s += sum(result.duration_s for result in results)
        languages.update(result.language for result in results)
        texts += [reference.text for reference in batch]
        on_progress(len(texts))
    if not language and languages:
        language = languages.most_common(1)[0][0]
    return Comparison(texts, duration_s, standard, speculative, language)


def _good(
    references: Iterable[Reference], on_bad: Callable[[Reference, InvalidAudio], None] | None
) -> Iterator[Reference]:
    """Yield the recordings that can be decoded."""
    for reference in references:
        try:
            for source in recordings_in(reference.audio)[0]:
                if isinstance(source, InvalidAudio):
                    raise source
                for _ in source.decode():
                    pass
        except InvalidAudio as error:
            if on_bad is None:
                raise
            on_bad(reference, error)
        else:
            yield reference


def _batches(references: Iterable[Reference], size: int) -> Iterable[list[Reference]]:
    batch: list[Reference] = []
    for reference in references:
        batch.append(reference)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
