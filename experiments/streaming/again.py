"""The same steps once more, by the target alone: what the policy writes must be the same, word for word."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from experiments.streaming.listening import DECODING, Heard, pieces
from experiments.streaming.takes import Take
from specwhisper.engine.one_process import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.utterances import Utterances
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

SESSION = "again"


class TargetAlone:
    """Hears takes in the steps in which they were heard before."""

    def __init__(self, target: str, dtype: str = "float32") -> None:
        checkpoint = load_checkpoint(target, dtype=dtype)
        self._vocabulary = checkpoint.vocabulary
        self._max_new_tokens = checkpoint.max_new_tokens
        self._model = WhisperModel(checkpoint, 1)

    def text(self, take: Take, live: LiveOptions, heard: Heard) -> str:
        """Return what is written when audio is taken just as far as those steps reached."""
        verifier = Verifier(self._model, executor=InlineExecutor(), max_new_tokens=self._max_new_tokens)
        verifier.open(SESSION, Mode.TARGET_ONLY, replace(DECODING, live=live))
        run = _Run(verifier, self._vocabulary, live, heard)
        voice, num_samples, cut = VoiceActivity(EndpointingOptions()), 0, pieces(take.pcm)
        for number, (_, pcm) in enumerate(cut):
            marks = asyncio.run(voice.detect(pcm))
            run.hear(AudioChunk(num_samples, pcm, is_last=number + 1 == len(cut), marks=marks))
            num_samples += len(pcm) // 2
        verifier.close(SESSION)
        return run.text


class _Run:
    """One take; the engine would make every step it can, and is only asked for those that were made."""

    def __init__(self, verifier: Verifier, vocabulary: Vocabulary, live: LiveOptions, heard: Heard) -> None:
        self._verifier = verifier
        self._transcript = LiveTranscript(vocabulary, live.position)
        self._utterances = Utterances()
        self._step_samples = live.step_ms * SAMPLE_RATE // 1000
        self._steps = deque(heard.steps)
        self._decoded_to = -1  # sample
        self.text = ""

    def hear(self, chunk: AudioChunk) -> None:
        """Take in audio, and decode where that was done."""
        self._verifier.submit(SESSION, chunk)
        end_sample = chunk.start_sample + len(chunk.pcm) // 2
        self._utterances.append_audio(end_sample, chunk.marks, is_last=chunk.is_last)
        while self._is_due() and self._verifier.has_work:
            self._make_step()
        while chunk.is_last and self._verifier.has_work:
            self._make_step()

    def _is_due(self) -> bool:
        """Return whether the audio reaches just as far as the next step did, or the last one was the end."""
        utterance = self._utterances.current
        if utterance is None:
            return False
        if utterance.end_sample is not None and self._decoded_to == _whole_frames(utterance.end_sample):
            return True  # it was known to be the end while it was decoded
        if not self._steps:
            return False
        step = self._steps[0]
        ends_utterance = len(self._steps) == 1 or self._steps[1].start_sample >= step.end_sample
        if ends_utterance and utterance.end_sample is None:
            return False  # it was made once, and when that was known: here it would be made twice
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
                    self._note(event)
                    return

    def _note(self, commit: Commit) -> None:
        made = self._transcript.steps.pop()
        if self._steps and made.end_sample == self._steps[0].end_sample:
            self._steps.popleft()
        self._decoded_to = made.end_sample
        if commit.step is not None and commit.step.is_last:
            self._utterances.finish_current()
            self._decoded_to = -1


def _whole_frames(sample: int) -> int:
    return sample // HOP_SAMPLES * HOP_SAMPLES
