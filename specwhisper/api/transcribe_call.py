"""The checked arguments of one call of the Python API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.audio.inputs import Audio, Source, check_all, recordings_in
from specwhisper.errors import InvalidAudio, InvalidRequest, RecordingsFailed, UnsupportedOption
from specwhisper.model.chunked import Chunk, cut
from specwhisper.options import DecodingOptions, options_from
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode

MODES = (Mode.ONE_PROCESS, Mode.TARGET_ONLY)
Watch = Callable[[int, TranscriptBuilder], None]


class Reading:
    """Sources in the order of an iterable; one that raises ends them.

    Attributes
    ----------
    error : the exception that it raised.
    """

    def __init__(self, sources: Iterable[Source | InvalidAudio]) -> None:
        self._sources = sources
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Source | InvalidAudio]:
        try:
            yield from self._sources
        except Exception as error:  # raised after the others are done, so that no result is lost
            self.error = error


@dataclass(frozen=True, kw_only=True)
class TranscribeCall:
    """The arguments of ``SpeculativeWhisper.transcribe``, which documents them.

    Attributes
    ----------
    config : has the values that the call leaves out.
    has_draft : whether the pair has a draft.
    max_batch_size : number of recordings that the pair has slots for.
    draft_length : mode, and how far the draft runs ahead.
    sources : what decodes each recording, or the error in the place of one that cannot be read.
    is_one : whether ``audio`` is a single recording.
    decoding : all decoding options.
    started_s : time of the call, by :func:`time.perf_counter`.
    """

    audio: Audio | Iterable[Audio]
    config: SpeculativeConfig
    has_draft: bool
    max_batch_size: int
    options: Mapping[str, Any]
    mode: Mode | None
    gamma: int | None
    use_adaptive_gamma: bool | None
    batch_size: int | None
    chunk_length_s: float | None
    stride_length_s: float | None
    return_stats: bool
    progress: bool | None
    on_error: str
    watch: Watch
    sources: Iterable[Source | InvalidAudio] = field(init=False)
    is_one: bool = field(init=False)
    decoding: DecodingOptions = field(init=False)
    draft_length: DraftLength = field(init=False)
    started_s: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "return"):
            raise InvalidRequest(f"on_error is {self.on_error!r}: choose 'raise' or 'return'.")
        if self.batch_size is not None:
            check_batch_size(self.batch_size)
        object.__setattr__(self, "decoding", options_from(self.config.decoding, self.options))
        object.__setattr__(self, "draft_length", self._read_draft_length())
        self._check_chunks()
        sources, is_one = recordings_in(self.audio)
        object.__setattr__(self, "sources", sources if isinstance(sources, list) else Reading(sources))
        object.__setattr__(self, "is_one", is_one)
        if self.decoding.hint and not is_one and self.num_recordings != 1:
            raise InvalidRequest("hint is the text of one recording: transcribe each in a call of its own.")
        if self.on_error == "raise" and isinstance(sources, list):
            check_all(sources)

    @property
    def num_slots(self) -> int:
        """How many slots the call may hold at once."""
        return min(self.batch_size or self.max_batch_size, self.max_batch_size)

    @property
    def reading_error(self) -> Exception | None:
        """The error that the iterable of recordings raised."""
        return self.sources.error if isinstance(self.sources, Reading) else None

    @property
    def num_recordings(self) -> int | None:
        """The number of recordings; ``None`` if only reading them shows it."""
        return len(self.sources) if isinstance(self.sources, list) else None

    def handed_over(self, results: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Yield results; raise the errors that are not yielded when there is no more."""
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

    def cut(self, num_samples: int) -> Iterator[Chunk]:
        """Cut a recording into chunks."""
        if self.chunk_length_s is None:
            raise RuntimeError("This call has no chunk_length_s.")
        return cut(num_samples, self.chunk_length_s, self.stride_length_s)

    def _read_draft_length(self) -> DraftLength:
        mode = self.mode or (Mode.ONE_PROCESS if self.has_draft else Mode.TARGET_ONLY)
        if mode not in MODES:
            raise UnsupportedOption(
                f"mode is '{mode}': one process has {' and '.join(MODES)}; the others need two servers."
            )
        if mode == Mode.ONE_PROCESS and not self.has_draft:
            raise InvalidRequest(f"mode is '{mode}': there is no draft model; leave mode out.")
        return self.config.draft_length(Mode(mode), self.gamma, self.use_adaptive_gamma)

    def _check_chunks(self) -> None:
        if self.chunk_length_s is None:
            if self.stride_length_s is not None:
                raise InvalidRequest("stride_length_s is the overlap of chunks: set chunk_length_s too.")
            return
        next(self.cut(0))
        for name in ("word_timestamps", "multilingual", "languages", "condition_on_previous_text", "hint"):
            if getattr(self.decoding, name):
                raise UnsupportedOption(
                    f"Chunks are decoded on their own: leave chunk_length_s or {name} out."
                )


def check_batch_size(batch_size: Any) -> None:
    """Refuse a ``batch_size`` that is no whole number of at least 1."""
    if not isinstance(batch_size, Integral) or isinstance(batch_size, bool):
        raise InvalidRequest(f"batch_size is {batch_size!r}: it must be a whole number.")
    if batch_size < 1:
        raise InvalidRequest(f"batch_size is {batch_size}: it must be at least 1.")
