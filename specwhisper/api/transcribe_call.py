"""One call of the Python API: its checked arguments, and its recordings on their way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.damage import Warnings
from specwhisper.audio.inputs import Audio, Source, check_all, recordings_in
from specwhisper.audio.speech import SpeechMap, find_speech, only_speech, placed
from specwhisper.engine.shared_pair import Prepared
from specwhisper.errors import InvalidAudio, InvalidRequest, RecordingsFailed, UnsupportedOption
from specwhisper.model.chunked import Chunk, cut, join
from specwhisper.options import DecodingOptions, options_from
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode, TimeOrder

MODES = (Mode.ONE_PROCESS, Mode.TARGET_ONLY)
Watch = Callable[[int, TranscriptBuilder], None]
Cut = Callable[[int], Iterator[Chunk]]


class TranscribeCall:
    """The arguments of ``SpeculativeWhisper.transcribe``, which documents them, as the call uses them.

    Parameters
    ----------
    config : has the values that the call leaves out.
    has_draft : whether the pair has a draft.
    max_batch_size : number of recordings that the pair has slots for.

    Attributes
    ----------
    started_s : time of the call, by :func:`time.perf_counter`.
    num_slots : most recordings of the call that hold a slot at once.
    sources : what decodes each recording, or the error in the place of one that cannot be read.
    is_one : whether ``audio`` is a single recording.
    num_recordings : ``None`` if only reading them shows it.
    reading_error : the exception that the iterable of recordings raised, which ends it.
    cut : cuts a recording of some samples into chunks; ``None`` if it is decoded window after window.
    """

    def __init__(
        self,
        audio: Audio | Iterable[Audio],
        config: SpeculativeConfig,
        has_draft: bool,
        max_batch_size: int,
        /,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        use_adaptive_gamma: bool | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        progress: bool | None = None,
        on_error: str = "raise",
        watch: Watch = lambda index, builder: None,
        **options: Any,
    ) -> None:
        self.started_s = time.perf_counter()
        if on_error not in ("raise", "return"):
            raise InvalidRequest(f"on_error is {on_error!r}: choose 'raise' or 'return'.")
        if batch_size is not None:
            check_batch_size(batch_size)
        self.num_slots = min(batch_size or max_batch_size, max_batch_size)
        self.return_stats, self.progress, self.on_error, self.watch = return_stats, progress, on_error, watch
        self.decoding = options_from(config.decoding, options)
        self.draft_length = config.draft_length(_checked(mode, has_draft), gamma, use_adaptive_gamma)
        self.cut = _cutter(chunk_length_s, stride_length_s, self.decoding)
        sources, self.is_one = recordings_in(audio)
        self.num_recordings = len(sources) if isinstance(sources, list) else None
        self.sources = self._read(sources)
        self.reading_error: Exception | None = None
        if self.decoding.hint and not self.is_one and self.num_recordings != 1:
            raise InvalidRequest("hint is the text of one recording: transcribe each in a call of its own.")
        if on_error == "raise" and isinstance(sources, list):
            check_all(sources)

    def _read(self, sources: Iterable[Source | InvalidAudio]) -> Iterator[Source | InvalidAudio]:
        try:
            yield from sources
        except Exception as error:  # raised after the others are done, so that no result is lost
            self.reading_error = error

    def handed_over(self, results: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yield results; after the last one, raise the errors that were not yielded."""
        errors: dict[int, Exception] = {}
        num_results = 0
        for index, result in results:
            num_results += 1
            if isinstance(result, Exception) and self.on_error == "raise":
                errors[index] = result
            else:
                yield index, result
        ended_by = self.reading_error
        if errors or ended_by is not None:
            raise RecordingsFailed.of(errors, num_results, ended_by=ended_by) from ended_by


def _checked(mode: Mode | None, has_draft: bool) -> Mode:
    mode = mode or (Mode.ONE_PROCESS if has_draft else Mode.TARGET_ONLY)
    if mode not in MODES:
        raise UnsupportedOption(
            f"mode is '{mode}': one process has {' and '.join(MODES)}; the others need two servers."
        )
    if mode == Mode.ONE_PROCESS and not has_draft:
        raise InvalidRequest(f"mode is '{mode}': there is no draft model; leave mode out.")
    return Mode(mode)


def _cutter(length_s: float | None, stride_s: float | None, decoding: DecodingOptions) -> Cut | None:
    """Return what cuts recordings into chunks, if they are to be cut."""
    if length_s is None:
        if stride_s is not None:
            raise InvalidRequest("stride_length_s is the overlap of chunks: set chunk_length_s too.")
        return None
    next(cut(0, length_s, stride_s))  # raises what is wrong with them
    for name in ("word_timestamps", "multilingual", "languages", "condition_on_previous_text", "hint"):
        if getattr(decoding, name):
            raise UnsupportedOption(f"Chunks are decoded on their own: leave chunk_length_s or {name} out.")
    return lambda num_samples: cut(num_samples, length_s, stride_s)


def check_batch_size(batch_size: Any) -> None:
    """Refuse a ``batch_size`` that is not a whole number of at least 1."""
    if not isinstance(batch_size, Integral) or isinstance(batch_size, bool):
        raise InvalidRequest(f"batch_size is {batch_size!r}: it must be a whole number.")
    if batch_size < 1:
        raise InvalidRequest(f"batch_size is {batch_size}: it must be at least 1.")


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
                    source = source.through(partial(only_speech, source.decode, speech))
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
        cut: Cut,
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
            if isinstance(pcm, Exception):
                self._homes[number] = _Recording(index, []), 0
                number += 1
                yield pcm
                continue
            chunks = list(self._cut(len(pcm) // BYTES_PER_SAMPLE))
            recording = _Recording(index, chunks)
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
