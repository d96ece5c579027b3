"""Other programs, greedy, one thread each; every one is made in a process of its own.

On random weights they ``decode`` windows: they write a given number of tokens for each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers import WhisperForCausalLM, WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.peers.arms import NUM_BATCHED, Audio, Piece, Run, System, floats, timed, without_specials
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, WINDOW_SAMPLES

GREEDY: dict[str, Any] = {  # arguments of faster-whisper
    "language": "en",
    "beam_size": 1,
    "temperature": 0.0,
    "condition_on_previous_text": False,
    "compression_ratio_threshold": None,
    "log_prob_threshold": None,
    "no_speech_threshold": None,
}
NUM_PROMPT = 4  # its tokens: start, language, task, no timestamps


class Transformers:
    """``generate`` as its users call it; with an assistant, its assisted generation, too."""

    def __init__(self, target: str, assistant: str | None = None) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        load: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa"}
        self._model: Any = WhisperForConditionalGeneration.from_pretrained(target, **load)
        # The decoder alone: it shares the target's encoder, as distil-whisper is meant to be used.
        self._assistant = WhisperForCausalLM.from_pretrained(assistant, **load) if assistant else None
        self._extract: Any = WhisperFeatureExtractor(feature_size=self._model.config.num_mel_bins)
        generation = self._model.generation_config
        self._special = generation.eos_token_id, generation.no_timestamps_token_id + 1
        self._language = {"language": "en", "task": "transcribe"} if generation.is_multilingual else {}

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe recordings; without timestamps in windows of 30 s, as ours are then."""
        assisted = {"assistant_model": self._assistant} if system is System.ASSISTED else {}

        def transcribe(audio: Audio, _: int) -> tuple[int, ...]:
            ids: list[int] = []
            for features in self._features(audio, timestamps):
                output = self._generate(
                    features, return_timestamps=timestamps, return_segments=timestamps, **assisted
                )
                if timestamps:
                    ids += [int(id_) for segment in output["segments"][0] for id_ in segment["tokens"]]
                else:
                    ids += output[0].tolist()
            return without_specials(ids, self._special)

        return timed(samples, transcribe)

    def decode(self, pieces: Sequence[Piece]) -> Run:
        def write(audio: Audio, number: int) -> list[int]:
            count = pieces[number].num_tokens
            features = self._extract(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
            output = self._generate(features, min_new_tokens=count, max_new_tokens=count)
            return output[0].tolist()[-count:]

        return timed(pieces, write)

    def _generate(self, features: torch.Tensor, **arguments: Any) -> Any:
        return self._model.generate(features, do_sample=False, num_beams=1, **self._language, **arguments)

    def _features(self, audio: Audio, timestamps: bool) -> Sequence[torch.Tensor]:
        is_long = len(audio) > WINDOW_SAMPLES
        padding = {"truncation": False, "padding": "longest"} if is_long else {}
        extracted = self._extract(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt", **padding)
        features = extracted.input_features
        if timestamps or not is_long:
            return [features]
        missing = -features.shape[-1] % WINDOW_FRAMES
        return torch.nn.functional.pad(features, (0, missing)).split(WINDOW_FRAMES, dim=-1)


class FasterWhisper:
    """faster-whisper, which runs CTranslate2, one recording at a time or batched.

    Parameters
    ----------
    dtype : CTranslate2's name of the precision.
    suppress : token ids that are never written; by default those of faster-whisper.
    specials : further ones, of which a window with a given number of tokens has none.
    is_multilingual : CTranslate2 judges by size: a vocabulary smaller than Whisper's own it takes for
        English-only, and faster-whisper then leaves language and task out of the prompt.
    """

    def __init__(
        self,
        folder: Path,
        dtype: str,
        suppress: Sequence[int] = (-1,),
        specials: Sequence[int] = (),
        *,
        is_multilingual: bool = False,
    ) -> None:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        self._model = WhisperModel(str(folder), device="cpu", compute_type=dtype, cpu_threads=1)
        if is_multilingual:
            self._model.model = _Multilingual(self._model.model)
        self._batched = BatchedInferencePipeline(self._model)
        self._suppress, self._specials = list(suppress), list(specials)

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        if system is System.FASTER_WHISPER_BATCHED:
            recordings = [floats(sample.pcm) for sample in samples]
            started_s = perf_counter()
            tokens = self._all(recordings, timestamps)
            return Run((perf_counter() - started_s,), tokens)
        options = {"without_timestamps": not timestamps, "suppress_tokens": self._suppress}
        return timed(samples, lambda audio, _: self._tokens(audio, options))

    def decode(self, pieces: Sequence[Piece]) -> Run:
        options = {"without_timestamps": True, "suppress_tokens": [*self._suppress, *self._specials]}
        counts = [max_new_tokens(piece.num_tokens) for piece in pieces]
        return timed(pieces, lambda audio, n: self._tokens(audio, {**options, "max_new_tokens": counts[n]}))

    def _tokens(self, audio: Audio, options: dict[str, Any]) -> list[int]:
        segments, _ = self._model.transcribe(audio, **GREEDY, **options)
        return [token for segment in segments for token in segment.tokens]

    def _all(self, recordings: Sequence[Audio], timestamps: bool) -> tuple[tuple[int, ...], ...]:
        """Lay the recordings end to end and name the pieces of up to 30 s that go side by side."""
        starts = np.cumsum([0, *map(len, recordings)]).tolist()
        clips = [
            {"start": at / SAMPLE_RATE, "end": min(at + WINDOW_SAMPLES, end) / SAMPLE_RATE}
            for start, end in pairwise(starts)
            for at in range(start, end, WINDOW_SAMPLES)
        ]
        segments, _ = self._batched.transcribe(
            np.concatenate(recordings),
            without_timestamps=not timestamps,
            suppress_tokens=self._suppress,
            clip_timestamps=clips,
            batch_size=NUM_BATCHED,
            vad_filter=False,
            **GREEDY,
        )
        written: list[list[int]] = [[] for _ in recordings]
        for segment in segments:
            # A segment's start is rounded to milliseconds.
            place = bisect_right(starts[1:-1], segment.start * SAMPLE_RATE + SAMPLE_RATE / 1_000)
            written[place] += segment.tokens
        return tuple(map(tuple, written))


class _Multilingual:
    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def max_new_tokens(num_tokens: int) -> int:
    """Return the length to request for a number of tokens: CTranslate2 halves its argument.

    It writes min(length / 2, length - prompt) tokens, where length is the prompt and what is asked for.
    """
    return max(2 * num_tokens - NUM_PROMPT, num_tokens)


class OpenaiWhisper:
    """openai/whisper in float32; it knows no other vocabulary than Whisper's own."""

    def __init__(self, path: Path, end_of_text: int) -> None:
        import whisper

        self._whisper: Any = whisper
        self._model = whisper.load_model(str(path), device="cpu")
        self._end_of_text = end_of_text

    def decode(self, pieces: Sequence[Piece]) -> Run:
        whisper = self._whisper

        def write(audio: Audio, number: int) -> list[int]:
            features = whisper.log_mel_spectrogram(whisper.pad_or_trim(audio), self._model.dims.n_mels)
            options = whisper.DecodingOptions(
                language="en",
                temperature=0.0,
                without_timestamps=True,
                suppress_tokens=[-1, self._end_of_text],
                sample_len=pieces[number].num_tokens,
                fp16=False,
            )
            return whisper.decode(self._model, features, options).tokens

        return timed(pieces, write)


class WhisperCpp:
    """whisper.cpp; it knows no other vocabulary than Whisper's own."""

    def __init__(self, path: Path) -> None:
        import _pywhispercpp as library
        from pywhispercpp.utils import redirect_stderr

        self._library = library
        parameters = library.whisper_context_default_params()
        parameters.use_gpu = False
        with redirect_stderr(None):  # its log is dozens of lines
            self._model = library.whisper_init_from_file_with_params(str(path), parameters)

    def decode(self, pieces: Sequence[Piece]) -> Run:
        library = self._library

        def write(audio: Audio, number: int) -> list[int]:
            options = library.whisper_full_default_params(
                library.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
            )
            options.n_threads = 1
            options.language = "en"
            options.no_context = options.no_timestamps = options.single_segment = True
            options.print_progress = False
            options.max_tokens = pieces[number].num_tokens - 1  # it writes one more
            options.temperature_inc = 0.0  # no fallback
            library.whisper_full(self._model, options, audio, len(audio))
            return [
                library.whisper_full_get_token_id(self._model, segment, token)
                for segment in range(library.whisper_full_n_segments(self._model))
                for token in range(library.whisper_full_n_tokens(self._model, segment))
            ]

        return timed(pieces, write)
