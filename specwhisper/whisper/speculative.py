"""Draft and target in one process, as a Python API: ``SpeculativeWhisper("tiny", "large-v3")``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, cast, overload

import torch
from transformers import WhisperTokenizer

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.given import Audio, recordings_in
from specwhisper.audio.scan import log_mel_max
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.options import Acceptance, DecodingOptions, options_from
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcript import Transcript, TranscriptBuilder
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, Mode, Segment, Word
from specwhisper.whisper.checkpoint import load_checkpoint
from specwhisper.whisper.chunked import Chunk, cut, join
from specwhisper.whisper.model import WhisperModel
from specwhisper.whisper.one_process import OneProcess
from specwhisper.whisper.pairing import draft_ids
from specwhisper.whisper.sharing import share_encoder

Watch = Callable[[int, TranscriptBuilder], None]


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How to speculate, and how to choose tokens.

    Attributes
    ----------
    gamma : draft tokens per block.
    use_adaptive_gamma : begin with ``gamma`` and go on with what is fastest.
    temperature : 0 is greedy; several are tried in order until a window is good enough, see the thresholds of
        :class:`DecodingOptions`.
    top_k, top_p, seed, acceptance, acceptance_threshold : see :class:`DecodingOptions`. With a threshold the
        text may differ from the target's own, and results say so.
    """

    gamma: int = 5
    use_adaptive_gamma: bool = False
    temperature: float | Sequence[float] = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    acceptance: Acceptance = Acceptance.EXACT
    acceptance_threshold: float | None = None

    def __post_init__(self) -> None:
        DraftLength(Mode.ONE_PROCESS, self.gamma)
        options_from({}, self.decoding)

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding options among them."""
        return {
            "temperatures": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "acceptance": self.acceptance,
            "acceptance_threshold": self.acceptance_threshold,
        }


@dataclass(frozen=True, slots=True)
class Stats:
    """How the draft did; ``counts`` has everything that was counted."""

    counts: SpeculationStatistics

    @property
    def overall_acceptance_rate(self) -> float:
        """Accepted per verified draft token."""
        return self.counts.acceptance_rate

    @property
    def avg_tokens_per_iteration(self) -> float:
        """Tokens written per forward pass of the target."""
        return self.counts.tokens_per_pass

    @property
    def acceptance_histogram(self) -> list[int]:
        """Entry n counts the passes that kept n draft tokens."""
        return self.counts.acceptance_histogram


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcribed recording; it prints as its text.

    Attributes
    ----------
    language_probs : by code, where the language was detected.
    is_lossy : whether the text may differ from the target's own, because an ``acceptance_threshold`` was
        asked for. Under classical acceptance it is drawn from the target's own distribution.
    stats : how the draft did; ``None`` where ``return_stats=False`` was asked.
    """

    segments: tuple[Segment, ...]
    language: str
    duration_s: float
    language_probs: Mapping[str, float] = field(default_factory=dict)
    is_lossy: bool = False
    stats: Stats | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def words(self) -> tuple[Word, ...]:
        """The words, with ``word_timestamps=True``."""
        return tuple(word for segment in self.segments for word in segment.words)

    def __str__(self) -> str:
        return self.text


class SpeculativeWhisper:
    """Transcribes with a large model at the speed of a pair; the text is the large model's own.

    Parameters
    ----------
    draft_model, final_model : names such as "tiny", "large-v3" or "demo-target", hub ids or folders; without
        a draft the final model works alone.
    device : of both, as torch names it; a GPU where there is one.
    dtype : of both models' weights, one of :data:`specwhisper.types.DTYPES`, or as torch names it.
    batch_size : recordings that are transcribed side by side.
    """

    def __init__(
        self,
        draft_model: str | None = "tiny",
        final_model: str = "large-v3",
        device: str | None = None,
        config: SpeculativeConfig | None = None,
        *,
        dtype: str | torch.dtype = "float32",
        batch_size: int = 8,
    ) -> None:
        if batch_size < 1:
            raise InvalidRequest(f"batch_size is {batch_size}: it must be at least 1.")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.config = config or SpeculativeConfig()
        self.batch_size = batch_size
        load = partial(load_checkpoint, dtype=dtype, device=device)
        target, draft = load(final_model), load(draft_model) if draft_model else None
        ids = None
        self.shares_encoder = False
        if draft is not None:
            names = {"draft_name": draft.name, "target_name": target.name}
            ids = draft_ids(draft.vocabulary, target.vocabulary, **names)
            draft, target = share_encoder(draft, target, batch_size)
            self.shares_encoder = draft.encoder is target.encoder
        self._max_new_tokens = target.max_new_tokens
        self._tokenizer = cast(WhisperTokenizer, target.tokenizer)  # nothing is loaded without
        self._num_mel_bins = {c.num_mel_bins for c in (target, draft) if c is not None}
        self.final_model = WhisperModel(target, batch_size)
        self.draft_model: WhisperModel | None = None
        if draft is not None:
            self.draft_model = WhisperModel(
                draft, batch_size, vocabulary=target.vocabulary, ids=ids, is_draft=True
            )

    def without_draft(self) -> SpeculativeWhisper:
        """Give the final model alone, without loading it again."""
        alone = copy.copy(self)
        alone.final_model, alone.draft_model = self.final_model.unshared(), None
        return alone

    @overload
    def transcribe(
        self,
        audio: Audio,
        *,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        watch: Watch = ...,
        **options: Any,
    ) -> Transcription: ...
    @overload
    def transcribe(
        self,
        audio: Sequence[Audio],
        *,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        watch: Watch = ...,
        **options: Any,
    ) -> list[Transcription]: ...
    def transcribe(
        self,
        audio: Audio | Sequence[Audio],
        *,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        chunk_length_s: float | None = None,
        stride_length_s: float | None = None,
        return_stats: bool = True,
        watch: Watch = lambda place, builder: None,
        **options: Any,
    ) -> Transcription | list[Transcription]:
        """Transcribe a recording, or several side by side.

        Parameters
        ----------
        audio : one recording or several: files of any format (by name, open, or as bytes), arrays or tensors
            of 16 kHz mono samples (floats in -1..1, or int16), or dicts of ``array`` and ``sampling_rate``.
        max_tokens : most tokens per window of 30 s.
        batch_size : at most that of the constructor.
        chunk_length_s, stride_length_s : decode overlapping chunks side by side, as transformers' pipeline
            does, instead of window after window; 15 s suits distil models. Word times are not to be had
            then, the recording is held in memory, and nothing is told to ``watch``.
        watch : called with a recording's place and its transcript so far, to be read only, whenever that has
            changed.
        options : fields of :class:`DecodingOptions`, such as ``language``, ``word_timestamps`` or
            ``initial_prompt``; they go before what the config says.
        """
        if max_tokens is not None:
            if options.get("max_new_tokens") is not None:
                raise InvalidRequest("Both max_tokens and max_new_tokens are given: leave one out.")
            options["max_new_tokens"] = max_tokens
        wanted = options_from(self.config.decoding, options)
        sources, is_one = recordings_in(audio)
        batch_size = min(self.batch_size, self.batch_size if batch_size is None else batch_size)
        engine = OneProcess(
            self.final_model,
            self.draft_model,
            gamma=self.config.gamma,
            is_adaptive=self.config.use_adaptive_gamma,
            max_new_tokens=self._max_new_tokens,
            max_sessions=batch_size,
        )
        if chunk_length_s is None and stride_length_s is not None:
            raise InvalidRequest("stride_length_s says how chunks overlap: give chunk_length_s too.")
        if chunk_length_s is not None:
            for name in ("word_timestamps", "condition_on_previous_text"):
                if getattr(wanted, name):
                    raise UnsupportedOption(
                        f"Chunks are decoded on their own: leave chunk_length_s or {name} out."
                    )
            pcms = [b"".join(source()) for source in sources]
            cuts = [list(cut(len(pcm) // BYTES_PER_SAMPLE, chunk_length_s, stride_length_s)) for pcm in pcms]
            transcripts = self._chunked(engine, pcms, cuts, wanted)
        else:
            transcripts = engine.transcribe(
                [source() for source in sources],
                [self._for_recording(wanted, source) for source in sources],
                watch=watch,
            )
        results = [self._result(transcript, wanted, return_stats) for transcript in transcripts]
        return results[0] if is_one else results

    def _chunked(
        self,
        engine: OneProcess,
        pcms: Sequence[bytes],
        cuts: Sequence[Sequence[Chunk]],
        options: DecodingOptions,
    ) -> list[Transcript]:
        """Transcribe the chunks of all recordings side by side."""
        pieces = [
            pcm[chunk.start * BYTES_PER_SAMPLE : chunk.stop * BYTES_PER_SAMPLE]
            for pcm, chunks in zip(pcms, cuts, strict=True)
            for chunk in chunks
        ]
        heard = iter(engine.transcribe(pieces, options))
        return [
            join(chunks, list(islice(heard, len(chunks))), self._tokenizer, timestamps=options.timestamps)
            for chunks in cuts
        ]

    def _for_recording(
        self, options: DecodingOptions, source: Callable[[], Iterator[bytes]]
    ) -> DecodingOptions:
        """Add a long recording's loudest moment; the first window of a short one tells it."""
        num_samples = 0
        for pcm in source():
            num_samples += len(pcm) // BYTES_PER_SAMPLE
            if num_samples > WINDOW_SAMPLES:
                return replace(options, log_mel_max=log_mel_max(source(), self._num_mel_bins))
        return options

    def _result(self, transcript: Transcript, options: DecodingOptions, return_stats: bool) -> Transcription:
        return Transcription(
            segments=tuple(transcript.segments),
            language=transcript.language,
            duration_s=transcript.num_samples / SAMPLE_RATE,
            language_probs=transcript.language_probs,
            is_lossy=options.is_lossy and self.draft_model is not None,
            stats=Stats(transcript.statistics) if return_stats else None,
        )
