"""Other programs that transcribe live with Whisper, of a CTranslate2 folder; they are installed by hand."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.peers.arms import FLOAT32
from experiments.peers.others import GREEDY
from experiments.streaming.measures import Shown
from experiments.streaming.session import PIECE_S, SILENCE_MS, paced
from specwhisper.types import SAMPLE_RATE

STEP_S = 0.5  # least new audio between two interim texts
MAX_S = 15.0  # the longest utterance
PAD_MS = 200
Samples = NDArray[np.float32]


class FasterWhisperLoop:
    """faster-whisper in the usual loop: the open utterance again and again, a last time when it has ended."""

    def __init__(self, folder: Path) -> None:
        from faster_whisper import WhisperModel

        self._model = WhisperModel(str(folder), device="cpu", compute_type=FLOAT32, cpu_threads=1)

    def run(self, pcm: bytes) -> list[Shown]:
        audio = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
        shown, started_s = [], time.monotonic()
        for is_final, start, stop in self._utterances(audio, started_s):
            segments, _ = self._model.transcribe(audio[start:stop], **GREEDY)
            text = "".join(segment.text for segment in segments)
            final, tentative = (text, "") if is_final else ("", text)
            shown.append(Shown(time.monotonic() - started_s, final, "", tentative))
        return shown

    def _utterances(self, audio: Samples, started_s: float) -> Iterator[tuple[bool, int, int]]:
        from faster_whisper.vad import VadOptions, get_speech_timestamps

        vad = VadOptions(
            min_silence_duration_ms=SILENCE_MS, speech_pad_ms=PAD_MS, max_speech_duration_s=MAX_S
        )
        begin = transcribed_to = received = 0
        while True:
            next_s = min(received / SAMPLE_RATE + PIECE_S, len(audio) / SAMPLE_RATE)
            time.sleep(max(0.0, started_s + next_s - time.monotonic()))
            received = min(len(audio), int((time.monotonic() - started_s) * SAMPLE_RATE))
            spans = get_speech_timestamps(audio[begin:received], vad)
            if not spans and received == len(audio):
                return
            if not spans:
                continue
            start, stop = begin + spans[0]["start"], begin + spans[0]["end"]
            ended_at = stop + (SILENCE_MS - PAD_MS) * SAMPLE_RATE // 1000
            if len(spans) > 1 or ended_at <= received or received == len(audio):
                yield True, start, stop
                begin = transcribed_to = stop
            elif received - transcribed_to >= STEP_S * SAMPLE_RATE:
                transcribed_to = received
                yield False, start, received


class WhisperLiveKit:
    """WhisperLiveKit over faster-whisper, with its local agreement; its default needs other weights."""

    def __init__(self, folder: Path) -> None:
        from whisperlivekit import TranscriptionEngine

        logging.disable(logging.WARNING)  # it reports every call
        self._engine = TranscriptionEngine(
            model_path=str(folder),
            lan="en",
            backend="faster-whisper",
            backend_policy="localagreement",
            pcm_input=True,
        )

    def run(self, pcm: bytes) -> list[Shown]:
        return asyncio.run(self._run(pcm))

    async def _run(self, pcm: bytes) -> list[Shown]:
        from whisperlivekit import AudioProcessor

        processor = AudioProcessor(transcription_engine=self._engine)
        results = await processor.create_tasks()
        shown, final, started_s = [], "", time.monotonic()

        async def speak() -> None:
            async for piece in paced(pcm, started_s):
                await processor.process_audio(piece)
            await processor.process_audio(b"")

        speaking = asyncio.create_task(speak())
        async for front in results:
            before, final = final, "".join(line.text or "" for line in front.lines)
            update = Shown(time.monotonic() - started_s, final[len(before) :], "", front.buffer_transcription)
            shown.append(update)
        await speaking
        await processor.cleanup()
        return shown
