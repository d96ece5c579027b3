"""A call's recordings on their way: without silence, or in chunks that are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.files.damage import Warnings
from specwhisper.audio.inputs import Source
from specwhisper.audio.speech import SpeechMap, placed
from specwhisper.audio.vad_filter import find_speech, only_speech
from specwhisper.engine.shared_pair import Prepared
from specwhisper.model.chunked import Chunk, join
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import TimeOrder


class NoSpeech(Exception):
    """Is in the place of a recording without speech, which is not decoded."""


class SpeechFilter:
    """The speech of each recording of one call; without ``vad_filter`` all of it.

    It also keeps the warnings about each recording.
    """

    def __init__(self, options: DecodingOptions) -> None:
        self._options = options
        # By index, of recordings under way:
        self._speech: dict[int, SpeechMap] = {}
        self._warnings: dict[int, Warnings] = {}

    def filtered(self, sources: Iterable[Source | Exception]) -> Iterator[Source | Exception]:
        """Yield sources that decode to speech only, or errors in their places."""
        for index, source in enumerate(sources):
            if isinstance(source, Source):
                self._warnings[index] = source.warnings
                source.warnings.is_strict = self._options.strict
                source = replace(source, selection=self._options)
            if self._options.vad is not None and isinstance(source, Source):
                try:
                    speech = self._speech[index] = find_speech(source.decode(), self._options.vad)
                    if not speech.spans:
                        raise NoSpeech
                    source = source.through(only_speech(source.decode, speech))
                except Exception as error:
                    source = error
            yield source

    def placed(self, index: int, outcome: Transcription | Exception) -> Transcription | Exception:
        """Return a recording's transcription with its own times and its warnings."""
        speech, warnings = self._speech.pop(index, None), self._warnings.pop(index, Warnings())
        if speech is not None and isinstance(outcome, NoSpeech):
            outcome = Transcription.without_speech(self._options, speech.duration_s)
            return replace(outcome, warnings=warnings.sentences)
        if isinstance(outcome, Exception):
            return outcome
        outcome = replace(outcome, warnings=(*warnings.sentences, *outcome.warnings))
        if speech is None:
            return outcome
        return replace(
            outcome,
            segments=TimeOrder()(placed(outcome.segments, speech)),
            duration_s=speech.duration_s,
            duration_after_vad_s=speech.speech_s,
        )


if TYPE_CHECKING:
    from transformers import WhisperTokenizer


@dataclass(slots=True)
class _Recording:
    """One recording of which chunks are under way."""

    index: int
    chunks: list[Chunk]
    transcripts: dict[int, Transcription] = field(default_factory=dict)
    has_failed: bool = False


class ChunkedRecordings:
    """Cuts recordings one after the other and joins the transcripts of their chunks.

    Parameters
    ----------
    recordings : PCM of each, or the error of one that cannot be read.
    cut : returns the chunks of a recording, by its number of samples.
    """

    def __init__(
        self,
        recordings: Iterable[bytes | Exception],
        cut: Callable[[int], Iterator[Chunk]],
        options: DecodingOptions,
        tokenizer: WhisperTokenizer,
    ) -> None:
        self._recordings = recordings
        self._cut = cut
        self._options = options
        self._tokenizer = tokenizer
        self._homes: dict[int, tuple[_Recording, int]] = {}  # recording and chunk, by number

    def prepared(self) -> Iterator[Prepared | Exception]:
        """Yield the chunks of all recordings, and the error of one that cannot be read."""
        number = 0
        for index, pcm in enumerate(self._recordings):
            chunks = [] if isinstance(pcm, Exception) else list(self._cut(len(pcm) // BYTES_PER_SAMPLE))
            recording = _Recording(index, chunks)
            if isinstance(pcm, Exception):
                self._homes[number] = recording, 0
                number += 1
                yield pcm
                continue
            for chunk_index, chunk in enumerate(chunks):
                self._homes[number] = recording, chunk_index
                number += 1
                piece = pcm[chunk.start * BYTES_PER_SAMPLE : chunk.stop * BYTES_PER_SAMPLE]
                yield Prepared(piece, self._options)

    def take(
        self, number: int, outcome: Transcription | Exception
    ) -> tuple[int, float, Transcription | Exception | None]:
        """Note the outcome of a chunk.

        Returns
        -------
        the recording's index, the share of it that is transcribed, and its transcript or error; ``None`` as
        long as chunks are missing, and after its error.
        """
        recording, chunk_index = self._homes.pop(number)
        if isinstance(outcome, Exception):
            is_first, recording.has_failed = not recording.has_failed, True
            return recording.index, 1.0, outcome if is_first else None
        transcripts, chunks = recording.transcripts, recording.chunks
        transcripts[chunk_index] = outcome
        if len(transcripts) < len(chunks):
            return recording.index, len(transcripts) / len(chunks), None
        in_order = [transcripts[each] for each in range(len(chunks))]
        joined = join(chunks, in_order, self._tokenizer, timestamps=self._options.timestamps)
        return recording.index, 1.0, joined
