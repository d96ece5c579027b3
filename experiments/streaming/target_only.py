"""Decode a session's steps again by the target alone: the text must be the same."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from specwhisper.transcription.utterances import Utterances

from experiments.streaming.live_client import DECODING, LiveResult, pieces
from experiments.streaming.takes import Take
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    AudioChunk,
    Commit,
    Failed,
    Finished,
    Mode,
    WindowOpened,
)
from specwhisper_draft_server.voice_activity import VoiceActivity

SESSION = "target-only"


class TargetOnly:
    """Decodes takes in the steps of an earlier session."""

    def __init__(self, target: str, dtype: str = "float32", *, cut_windows: bool = False) -> None:
        checkpoint = load_checkpoint(target, dtype=dtype)
        self._vocabulary = checkpoint.vocabulary
        self._max_new_tokens = checkpoint.max_new_tokens
        self._model = WhisperModel(checkpoint, 1, cut_live_windows=cut_windows)

    def text(self, take: Take, live: LiveOptions, result: LiveResult) -> str:
        """Return the text of a take, decoded in the result's steps."""
        verifier = Verifier(self._model, executor=InlineExecutor(), max_new_tokens=self._max_new_tokens)
        verifier.open(SESSION, Mode.TARGET_ONLY, replace(DECODING, live=live))
        run = _Run(verifier, self._vocabulary, live, result)
        voice, num_samples, cut = VoiceActivity(EndpointingOptions()), 0, pieces(take.pcm)
        for number, (_, pcm) in enumerate(cut):
            marks = asyncio.run(voice.detect(pcm))
            run.append_audio(AudioChunk(num_samples, pcm, is_last=number + 1 == len(cut), marks=marks))
            num_samples += len(pcm) // 2
        verifier.close(SESSION)
        return run.text


class _Run:
    """One take; of the steps that the engine could make, only the recorded ones are run."""

    def __init__(
        self, verifier: Verifier, vocabulary: Vocabulary, live: LiveOptions, result: LiveResult
    ) -> None:
        self._verifier = verifier
        self._transcript = LiveTranscript(vocabulary, live.position)
        self._utterances = Utterances()
        self._step_samples = live.step_ms * SAMPLE_RATE // 1000
        self._steps = deque(result.steps)
        self._decoded_to = -1  # sample
        self.text = ""

    def append_audio(self, chunk: AudioChunk) -> None:
        """Append audio and run the recorded steps that it reaches."""
        self._verifier.submit(SESSION, chunk)
        end_sample = chunk.start_sample + len(chunk.pcm) // 2
        self._utterances.append_audio(end_sample, chunk.marks, is_last=chunk.is_last)
        while self._is_due() and self._verifier.has_work:
            self._make_step()
        while chunk.is_last and self._verifier.has_work:
            self._make_step()

    def _is_due(self) -> bool:
        """Return whether the audio ends where the next step did, or the last step was the end."""
        utterance = self._utterances.current
        if utterance is None:
            return False
        if utterance.end_sample is not None and self._decoded_to == _whole_frames(utterance.end_sample):
            return True  # the end became known while this step was decoded
        if not self._steps:
            return False
        step = self._steps[0]
        ends_utterance = len(self._steps) == 1 or self._steps[1].start_sample >= step.end_sample
        if ends_utterance and utterance.end_sample is None:
            return False  # made once, when the end was known; now it would be made twice
        end_sample = utterance.step_end(self._utterances.received_samples, self._step_samples)
        return min(end_sample, step.start_sample + WINDOW_SAMPLES) == step.end_sample

    def _make_step(self) -> None:
        while self._verifier.has_work:
            for _, event in self._verifier.step():
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Finished):
                    return
                if isinstance(event, WindowOpened | Commit):
                    self.text += "".join(segment.text for segment in self._transcript.observe(event))
                if isinstance(event, Commit) and event.is_final:
                    self._record(event)
                    return

    def _record(self, commit: Commit) -> None:
        step = self._transcript.steps.pop()
        if self._steps and step.end_sample == self._steps[0].end_sample:
            self._steps.popleft()
        self._decoded_to = step.end_sample
        if commit.step is not None and commit.step.is_last:
            self._utterances.finish_current()
            self._decoded_to = -1


def _whole_frames(sample: int) -> int:
    return sample // HOP_SAMPLES * HOP_SAMPLES
