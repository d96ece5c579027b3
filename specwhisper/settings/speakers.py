"""Models for speakers as a setting of servers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated

from specwhisper.audio import turns as decoding
from specwhisper.audio.inputs import Audio, Decode
from specwhisper.settings.setting import MODEL, Setting
from specwhisper.speakers.beside import beside
from specwhisper.speakers.diarizer import Diarizer
from specwhisper.speakers.live_diarizer import LiveDiarizer
from specwhisper.speakers.turns import Turn

Turns = asyncio.Task[Sequence[Turn]]


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


class Speakers:
    """Finds speakers, in a few recordings at a time and in live audio.

    Each recording takes a core, and the memory of its samples.

    Attributes
    ----------
    live : finds the voices of all live sessions.
    """

    def __init__(self, diarizer: Diarizer, live: LiveDiarizer, num_jobs: int) -> None:
        self.live = live
        self._diarizer = diarizer
        self._jobs = asyncio.Semaphore(num_jobs)

    def beside(self, decode: Decode) -> AbstractAsyncContextManager[Turns]:
        """Look for speakers during a block.

        An error ends the block; leaving it ends the search.
        """
        return beside(partial(self._turns, decode))

    async def knowing(self, samples: Mapping[str, Audio]) -> Speakers:
        """Return one that names speakers as :meth:`Diarizer.knowing` does.

        Both share the limit of recordings at a time.
        """
        if not samples:
            return self
        informed = copy.copy(self)
        informed._diarizer = await decoding.in_turn(decoding.Turn(), self._diarizer.knowing, samples)
        return informed

    async def close(self) -> None:
        """End the process of live sessions."""
        await self.live.close()

    async def _turns(self, decode: Decode) -> Sequence[Turn]:
        async with self._jobs:
            return await self._diarizer.turns_of(decode)
