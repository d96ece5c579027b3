"""Transcribe recordings with the target alone and with the pair, and compare."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from specwhisper.api.progress import ProgressBar
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.inputs import decoder_of
from specwhisper.errors import InvalidAudio
from specwhisper.options import Task
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.cli.advice import Ratio
from specwhisper_evaluation.references import Reference

OnPosition = Callable[[int, float], None]
# Written without spaces between words: each letter counts as one, as in Whisper's paper.
WITHOUT_SPACES = frozenset(("zh", "ja", "th", "lo", "my", "yue"))


@dataclass(frozen=True, slots=True)
class Method:
    """A method of transcribing.

    Attributes
    ----------
    name : shown in tables.
    transcribe : transcribes a batch concurrently, and reports progress as (index, seconds done).
    """

    name: str
    transcribe: Callable[[Sequence[Reference], OnPosition], Sequence[Transcription]]


@dataclass(slots=True)
class MethodResults:
    """The results of one method; ``seconds`` are the times of its batches."""

    name: str
    results: list[Transcription] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [result.text for result in self.results]

    @property
    def elapsed_s(self) -> float:
        return sum(self.seconds)

    @property
    def statistics(self) -> SpeculationStatistics:
        total = SpeculationStatistics()
        for result in self.results:
            if result.stats is not None:
                total.add(result.stats)
        return total


@dataclass(frozen=True, slots=True)
class ComparedRecording:
    """One recording with its reference text, transcribed by both methods."""

    name: str
    reference: str
    standard: Transcription
    speculative: Transcription

    @property
    def is_identical(self) -> bool:
        """Whether both wrote the same text and tokens; joined chunks have no tokens."""
        return self.standard.text == self.speculative.text and (
            _tokens(self.standard) == _tokens(self.speculative)
        )

    @property
    def statistics(self) -> SpeculationStatistics:
        return self.speculative.stats or SpeculationStatistics()

    @property
    def speed_up(self) -> float:
        """Time from request to last text of the target alone over that of the pair."""
        return self.standard.elapsed_s / self.speculative.elapsed_s


@dataclass(frozen=True, slots=True)
class Comparison:
    names: list[str]
    references: list[str]
    standard: MethodResults
    speculative: MethodResults

    @property
    def recordings(self) -> list[ComparedRecording]:
        columns = self.names, self.references, self.standard.results, self.speculative.results
        return [ComparedRecording(*row) for row in zip(*columns, strict=True)]

    @property
    def duration_s(self) -> float:
        return sum(result.duration_s for result in self.speculative.results)

    @property
    def language(self) -> str:
        """The code of the most frequent language; empty without recordings."""
        languages = Counter(
            "en" if result.options.task is Task.TRANSLATE else result.language
            for result in self.speculative.results
        )
        return languages.most_common(1)[0][0] if languages else ""

    @property
    def model(self) -> ModelInfo:
        return self.speculative.results[0].model

    @property
    def speed_up(self) -> float:
        return self.standard.elapsed_s / self.speculative.elapsed_s

    @property
    def speed_up_of_batches(self) -> Ratio:
        """Speed-up of each batch: geometric mean and 95 % interval."""
        return Ratio.paired(self.standard.seconds, self.speculative.seconds)

    @property
    def num_identical(self) -> int:
        return sum(recording.is_identical for recording in self.recordings)

    def rates(self, results: MethodResults) -> ErrorRates:
        return error_rates(self.references, results.texts, self.language)


def compare(
    methods: tuple[Method, Method],
    references: Iterable[Reference],
    *,
    batch_size: int = 1,
    bar: ProgressBar | None = None,
    on_undecodable: Callable[[Reference, InvalidAudio], None] | None = None,
) -> Comparison:
    """Transcribe each batch by both methods, in alternating order.

    The first batch is transcribed once more beforehand, untimed, because first calls take longer.

    Parameters
    ----------
    methods : the target alone, and the pair.
    on_undecodable : called with each recording that cannot be decoded, which is left out; without it, the
        error is raised.
    """
    bar = bar or ProgressBar(None, is_shown=False)
    standard, speculative = both = MethodResults(methods[0].name), MethodResults(methods[1].name)
    names: list[str] = []
    texts: list[str] = []
    decodable = _decodable(references, on_undecodable, bar)
    for number, batch in enumerate(iter(lambda: list(islice(decodable, batch_size)), [])):
        recordings = [reference for reference, _ in batch]
        if number == 0:
            for method in methods:
                method.transcribe(recordings, lambda index, at_s: None)
        order = list(zip(methods, both, strict=True))
        for turn, (method, results) in enumerate(order if number % 2 == 0 else reversed(order)):
            on_position = partial(_advance, bar, len(names), turn, [duration_s for _, duration_s in batch])
            started_s = time.perf_counter()
            transcribed = method.transcribe(recordings, on_position)
            results.seconds.append(time.perf_counter() - started_s)
            results.results += transcribed
        for index in range(len(batch)):
            bar.finish(len(names) + index)
        names += [reference.name for reference in recordings]
        texts += [reference.text for reference in recordings]
    return Comparison(names, texts, standard, speculative)


def _advance(
    bar: ProgressBar, first: int, turn: int, durations_s: Sequence[float], index: int, at_s: float
) -> None:
    """Show a recording's position; each method is half of its progress."""
    bar.advance(first + index, (turn + min(1.0, at_s / durations_s[index])) / 2)


def _tokens(result: Transcription) -> list[int]:
    return [token for segment in result.segments for token in segment.tokens]


def _decodable(
    references: Iterable[Reference],
    on_undecodable: Callable[[Reference, InvalidAudio], None] | None,
    bar: ProgressBar,
) -> Iterator[tuple[Reference, float]]:
    """Yield the recordings that can be decoded, with their lengths in seconds."""
    for reference in references:
        try:
            num_bytes = sum(map(len, decoder_of(reference.audio)()))
        except InvalidAudio as error:
            if on_undecodable is None:
                raise
            on_undecodable(reference, error)
            bar.finish(-1)  # it has no number among the others
        else:
            yield reference, num_bytes / BYTES_PER_SAMPLE / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Errors per word and per character of the references."""

    wer: float
    cer: float


def error_rates(references: Sequence[str], hypotheses: Sequence[str], language: str) -> ErrorRates:
    """Compare texts; references that are empty once normalised are left out."""
    normalise = _normaliser(language)
    pairs = [(normalise(r), normalise(h)) for r, h in zip(references, hypotheses, strict=True)]
    spoken = [(r, h) for r, h in pairs if r.strip()]
    if not spoken:
        return ErrorRates(0.0, 0.0)
    truth, texts = [r for r, _ in spoken], [h for _, h in spoken]
    return ErrorRates(float(jiwer.wer(truth, texts)), float(jiwer.cer(truth, texts)))


@cache
def _normaliser(language: str) -> Callable[[str], str]:
    if language == "en":
        normalise: Callable[[str], str] = EnglishTextNormalizer()  # reads a file
    else:
        normalise = BasicTextNormalizer(split_letters=language in WITHOUT_SPACES)
    return normalise
