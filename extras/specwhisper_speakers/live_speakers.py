"""Name the speakers of a live session's utterances."""

from __future__ import annotations

import logging

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import DiarizationFailed
from specwhisper.transcription.speakers import Turn, with_speakers
from specwhisper.types import SAMPLE_RATE, Segment
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.voices import Voices

logger = logging.getLogger(__name__)

MARGIN_S = 0.25  # around an utterance: its times are less sure than those of speech
# Audio after the last utterance; if there is more, its end counts. A server takes two minutes more than
# it has transcribed, and what is on the way to it may be half a minute.
MAX_KEPT_S = 240.0


class LiveSpeakers:
    """The speakers of one live session: A, B, ... in the order in which they first speak.

    The diarizer is shared by sessions. ``start_sample`` is where the first audio begins, in the time of
    utterances. Once there are ``max_speakers``, further voices are those of the nearest one.
    """

    def __init__(
        self, diarizer: LiveDiarizer, *, max_speakers: int | None = None, start_sample: int = 0
    ) -> None:
        self._diarizer = diarizer
        self._voices = Voices(diarizer.threshold, max_speakers)
        self._pcm = bytearray()
        self._start_sample = start_sample  # where the kept audio begins

    def append(self, pcm: bytes) -> None:
        self._pcm += pcm
        end_sample = self._start_sample + len(self._pcm) // BYTES_PER_SAMPLE
        self._forget_before(end_sample - round(MAX_KEPT_S * SAMPLE_RATE))

    async def named(self, utterance: Segment) -> Segment:
        """Return an utterance with speakers; they are empty if the process fails.

        Utterances come in their order, with the audio up to their ends appended.
        """
        start = max(round((utterance.start_s - MARGIN_S) * SAMPLE_RATE), self._start_sample)
        end = max(round((utterance.end_s + MARGIN_S) * SAMPLE_RATE), self._start_sample)
        first, last = (BYTES_PER_SAMPLE * (sample - self._start_sample) for sample in (start, end))
        piece = self._pcm[first:last]
        try:
            turns = await self._turns(bytes(piece), start / SAMPLE_RATE)
        except DiarizationFailed as error:
            logger.warning("speakers not found", extra={"error": str(error)})
            turns = ()
        self._forget_before(round((utterance.end_s - MARGIN_S) * SAMPLE_RATE))
        return with_speakers([utterance], turns)[0]

    async def _turns(self, pcm: bytes, start_s: float) -> tuple[Turn, ...]:
        turns, embeddings = await self._diarizer.voices_in(pcm)
        names = {
            number: self._voices.name_of(
                embeddings[number], sum(end_s - begin_s for begin_s, end_s, other in turns if other == number)
            )
            for number in dict.fromkeys(number for *_, number in turns)
            if number in embeddings
        }
        return tuple(
            Turn(start_s + begin_s, start_s + end_s, names[number])
            for begin_s, end_s, number in turns
            if number in names
        )

    def _forget_before(self, sample: int) -> None:
        num_samples = min(max(0, sample - self._start_sample), len(self._pcm) // BYTES_PER_SAMPLE)
        del self._pcm[: num_samples * BYTES_PER_SAMPLE]
        self._start_sample += num_samples
