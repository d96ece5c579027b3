"""Models for speakers as a setting of servers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Annotated

from specwhisper.audio import turns as decoding
from specwhisper.audio.inputs import Audio, Decode
from specwhisper.settings.setting import MODEL, Made, Setting
from specwhisper.transcription.speakers import Turn
from specwhisper_speakers.diarizer import Diarizer
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.live_speakers import LiveSpeakers


def speaker_models(
    speaker_models: Annotated[
        str | None,
        Setting(
            MODEL,
            "Folder with two models of sherpa-onnx, for speaker segmentation and speaker embeddings: offers "
            "{offer}.",
            metavar="FOLDER",
        ),
    ] = None,
    speaker_threshold: Annotated[
        float,
        Setting(MODEL, "Distance from which two voices are two speakers.", metavar="D", above=0),
    ] = 0.5,
    speaker_jobs: Annotated[
        int, Setting(MODEL, "Recordings whose speakers are looked for at a time.", metavar="N", min=1)
    ] = 1,
) -> Speakers | None:
    """Return what finds speakers; ``None`` without models."""
    if speaker_models is None:
        return None
    return Speakers(
        Diarizer(speaker_models, threshold=speaker_threshold),
        LiveDiarizer(speaker_models, threshold=speaker_threshold),
        speaker_jobs,
    )


DRAFT_SETTINGS = Made(speaker_models, words={"offer": "speaker tags in Riva's service"}, after="cut_windows")
GATEWAY_SETTINGS = Made(speaker_models, words={"offer": "the format diarized_json, and speakers on the page"})


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
