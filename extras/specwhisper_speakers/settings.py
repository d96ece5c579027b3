"""Models for speakers as a setting of servers."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specwhisper.audio import turns as decoding
from specwhisper.audio.inputs import Audio, Decode
from specwhisper.settings.setting import MODEL, Part
from specwhisper.transcription.speakers import Turn
from specwhisper.validated import ABOVE_0, naming, number, text, whole
from specwhisper_speakers.diarizer import Diarizer
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.live_speakers import LiveSpeakers
from specwhisper_speakers.voices import DEFAULT_THRESHOLD


def threshold_option(**about: Any) -> Any:
    help = "Voices at least this far apart are different speakers."
    must = "it must be above 0 and below 2"
    return number(DEFAULT_THRESHOLD, ABOVE_0, math.nextafter(2, 0), help, "D", must=must, **about)


@dataclass(frozen=True, kw_only=True)
class SpeakerOptions:
    speaker_models: str | None = text(
        None,
        "Folder with two models of sherpa-onnx, for speaker segmentation and speaker embeddings: offers "
        "{offer}.",
        "FOLDER",
        panel=MODEL,
    )
    speaker_threshold: float = threshold_option(panel=MODEL)
    speaker_jobs: int = whole(
        1, 1, math.inf, "Recordings whose speakers are looked for at a time.", panel=MODEL
    )

    def speakers(self) -> Speakers | None:
        """Return what finds speakers; ``None`` without models."""
        if self.speaker_models is None:
            return None
        with naming("speaker_models"):
            return Speakers(
                Diarizer(self.speaker_models, threshold=self.speaker_threshold),
                LiveDiarizer(self.speaker_models, threshold=self.speaker_threshold),
                self.speaker_jobs,
            )


DRAFT_SETTINGS, GATEWAY_SETTINGS = (
    Part(
        kind=SpeakerOptions,
        then=SpeakerOptions.speakers,
        words={"offer": offer},
        needs=("speaker_models",),
    )
    for offer in ("speaker tags in Riva's service", "the format diarized_json, and speakers on the page")
)


class Speakers:
    """Finds speakers, in a few recordings at a time and in live audio.

    Each recording takes a core, and the memory of its samples.
    """

    def __init__(self, diarizer: Diarizer, live: LiveDiarizer, num_jobs: int) -> None:
        self._diarizer = diarizer
        self._live = live  # finds the voices of all live sessions
        self._jobs = asyncio.Semaphore(num_jobs)

    async def turns_of(self, decode: Decode) -> Sequence[Turn]:
        """Return the turns of a recording, in its turn."""
        async with self._jobs:
            return await self._diarizer.turns_of(decode)

    async def knowing(self, samples: Mapping[str, Audio]) -> Speakers:
        """Return one that names speakers as :meth:`Diarizer.knowing` does; both share the limit."""
        if not samples:
            return self
        informed = copy.copy(self)
        informed._diarizer = await decoding.in_turn(decoding.Turn(), self._diarizer.knowing, samples)
        return informed

    def live(self, *, max_speakers: int | None = None, start_sample: int = 0) -> LiveSpeakers:
        return LiveSpeakers(self._live, max_speakers=max_speakers, start_sample=start_sample)

    async def close(self) -> None:
        await self._live.close()
