"""The same live policy with plain transformers: ``generate`` on the open utterance at each step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.utils import logging

from experiments.streaming.live_client import DECODING, LiveResult, Shown, pieces
from experiments.streaming.takes import Take
from specwhisper.audio.recording import Recording
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    DecodedStep,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
)
from specwhisper_draft_server.voice_activity import VoiceActivity


class PlainTransformers:
    """Transcribes one take at a time; skips steps when it is slower than real time, as our servers do."""

    def __init__(self, target: str) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        load: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa"}
        self._model: Any = WhisperForConditionalGeneration.from_pretrained(resolve(target), **load)
        self._vocabulary = load_checkpoint(target).vocabulary
        self._extract: Any = WhisperFeatureExtractor(feature_size=self._model.config.num_mel_bins)
        self._num_forwards = 0
        self._model.model.decoder.register_forward_hook(self._count)

    def run_live_session(self, take: Take, live: LiveOptions) -> LiveResult:
        """Transcribe a take in real time."""
        options = replace(DECODING, live=live)
        windows, recording, result = LiveWindows(self._vocabulary, options), Recording(), LiveResult()
        voice = VoiceActivity(EndpointingOptions())
        pending = list(pieces(take.pcm))[::-1]
        self._num_forwards, num_samples = 0, 0
        transcript = LiveTranscript(self._vocabulary)  # reads commits as our client does
        started_s = time.perf_counter()
        while True:
            at_s = time.perf_counter() - started_s
            while pending and pending[-1][0] <= at_s:
                _, pcm = pending.pop()
                marks = asyncio.run(voice.detect(pcm))
                result.shown += _begins(marks, at_s, result.shown)
                chunk = AudioChunk(num_samples, pcm, is_last=not pending, marks=marks)
                recording.append(chunk)
                num_samples = recording.received_samples
                windows.append_audio(chunk, num_samples)
            num_frames = windows.ready_frames(recording)
            if num_frames == 0:
                break
            if num_frames is None:
                time.sleep(max(0.0, pending[-1][0] - (time.perf_counter() - started_s)))
                continue
            num_final = windows.num_final
            window = windows.open(num_frames)
            transcript.observe(WindowOpened(window, num_final=num_final))
            forwards_before = self._num_forwards
            clip = recording.clip(window.start_frame, window.num_frames)
            tokens = self._generate(clip.window_samples(0), window)
            closed = windows.close(window, tokens)
            segments = transcript.observe(
                Commit(window.id, 0, tuple(tokens), is_final=True, outcome=closed.outcome, step=closed.step)
            )
            final = "".join(segment.text for segment in segments)
            result.shown.append(Shown(time.perf_counter() - started_s, final, transcript.verified_text, ""))
            num_forwards = self._num_forwards - forwards_before
            result.steps.append(DecodedStep(window.start_sample, window.end_sample, num_forwards))
        result.elapsed_s = time.perf_counter() - started_s
        result.num_steps, result.num_forwards = len(result.steps), self._num_forwards
        return result

    def _generate(self, samples: np.ndarray, window: Window) -> list[int]:
        features = self._extract(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        generation = self._model.generation_config
        arguments = {"language": "en", "task": "transcribe"} if generation.is_multilingual else {}
        output = self._model.generate(
            features,
            num_beams=1,
            temperature=(window.temperature,),
            compression_ratio_threshold=DECODING.compression_ratio_threshold,
            logprob_threshold=DECODING.logprob_threshold,
            no_speech_threshold=DECODING.no_speech_threshold,
            return_timestamps=True,
            return_segments=True,
            max_new_tokens=window.max_new_tokens,
            **arguments,
        )
        return [int(token) for segment in output["segments"][0] for token in segment["tokens"]]

    def _count(self, *_: Any) -> None:
        self._num_forwards += 1


def _begins(marks: Sequence[VoiceMark], at_s: float, shown: Sequence[Shown]) -> list[Shown]:
    """Return the starts of utterances as updates without new text."""
    verified = shown[-1].verified if shown else ""
    begins = [mark.sample / SAMPLE_RATE for mark in marks if mark.event is VoiceEvent.BEGIN]
    return [Shown(at_s, "", verified, "", speech_start_s) for speech_start_s in begins]
