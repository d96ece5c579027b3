"""Other programs, greedy, one thread each; every one is made in a process of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers import WhisperForCausalLM
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.common.models.checkpoints import as_transformers
from experiments.peers.arms import NUM_BATCHED, Audio, Run, System, floats, timed, without_specials
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, WINDOW_SAMPLES

OF_ALL: dict[str, Any] = {  # arguments of openai-whisper and faster-whisper
    "language": "en",
    "temperature": 0.0,
    "condition_on_previous_text": False,
    "compression_ratio_threshold": None,
    "no_speech_threshold": None,
}
GREEDY = OF_ALL | {"beam_size": 1, "log_prob_threshold": None}  # faster-whisper's names


class Transformers:
    """``generate`` as its users call it; with an assistant, its assisted generation, too."""

    def __init__(self, target: str, assistant: str | None = None) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._model: Any = as_transformers(load_checkpoint(target))
        # The decoder alone: it shares the target's encoder, as distil-whisper is meant to be used.
        self._assistant = (
            WhisperForCausalLM.from_pretrained(assistant, dtype=torch.float32) if assistant else None
        )
        self._extract: Any = WhisperFeatureExtractor(feature_size=self._model.config.num_mel_bins)
        generation = self._model.generation_config
        self._special = generation.eos_token_id, generation.no_timestamps_token_id + 1
        self._language = {"language": "en", "task": "transcribe"} if generation.is_multilingual else {}

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe recordings; without timestamps in windows of 30 s, as ours are then."""
        assisted = {"assistant_model": self._assistant} if system is System.ASSISTED else {}

        def transcribe(audio: Audio) -> tuple[int, ...]:
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
    is_multilingual : CTranslate2 judges by size: a vocabulary smaller than Whisper's own it takes for
        English-only, and faster-whisper then leaves language and task out of the prompt.
    """

    def __init__(
        self,
        folder: Path,
        dtype: str,
        suppress: Sequence[int] = (-1,),
        *,
        is_multilingual: bool = False,
    ) -> None:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        self._model = WhisperModel(str(folder), device="cpu", compute_type=dtype, cpu_threads=1)
        if is_multilingual:
            self._model.model = _Multilingual(self._model.model)
        self._batched = BatchedInferencePipeline(self._model)
        self._suppress = list(suppress)

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        if system is System.FASTER_WHISPER_BATCHED:
            recordings = [floats(sample.pcm) for sample in samples]
            started_s = perf_counter()
            tokens = self._all(recordings, timestamps)
            return Run((perf_counter() - started_s,), tokens)
        options = {"without_timestamps": not timestamps, "suppress_tokens": self._suppress}
        return timed(samples, lambda audio: self._tokens(audio, options))

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


class OpenaiWhisper:
    """openai/whisper in float32; it knows no other vocabulary than Whisper's own."""

    def __init__(self, file: Path) -> None:
        import whisper

        self._model: Any = whisper.load_model(str(file), device="cpu")

    def run(self, _: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        options = OF_ALL | {"logprob_threshold": None, "without_timestamps": not timestamps, "fp16": False}

        def transcribe(audio: Audio) -> list[int]:
            segments = self._model.transcribe(audio, **options)["segments"]
            return [token for segment in segments for token in segment["tokens"]]

        return timed(samples, transcribe)


class WhisperCpp:
    """whisper.cpp; it knows no other vocabulary than Whisper's own."""

    def __init__(self, file: Path) -> None:
        import _pywhispercpp as library
        from pywhispercpp.utils import redirect_stderr

        self._library = library
        parameters = library.whisper_context_default_params()
        parameters.use_gpu = False
        with redirect_stderr(None):  # its log is dozens of lines
            self._model = library.whisper_init_from_file_with_params(str(file), parameters)

    def run(self, _: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        library = self._library
        options = library.whisper_full_default_params(
            library.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
        )
        options.n_threads = 1
        options.language = "en"
        options.no_context, options.no_timestamps = True, not timestamps
        options.print_progress = False
        options.temperature_inc = 0.0  # no fallback

        def transcribe(audio: Audio) -> list[int]:
            library.whisper_full(self._model, options, audio, len(audio))
            return [
                library.whisper_full_get_token_id(self._model, segment, token)
                for segment in range(library.whisper_full_n_segments(self._model))
                for token in range(library.whisper_full_n_tokens(self._model, segment))
            ]

        return timed(samples, transcribe)
