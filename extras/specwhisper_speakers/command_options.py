"""Options of ``specwhisper transcribe`` and ``listen`` for speakers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from specwhisper.errors import InvalidRequest
from specwhisper.settings.command_line import reading
from specwhisper.settings.setting import Part
from specwhisper.validated import naming, option, whole
from specwhisper_speakers.diarizer import Diarizer
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.live_speakers import LiveSpeakers
from specwhisper_speakers.settings import threshold_option


@dataclass(frozen=True, kw_only=True)
class _SpeakerOptions:
    speaker_threshold: float = threshold_option()


def _to_sample(text: str) -> tuple[str, Path]:
    name, _, file = text.partition("=")
    if not (name and file):
        raise ValueError("write NAME=FILE, the name of the speaker and a recording")
    return name, Path(file)


@dataclass(frozen=True, kw_only=True)
class RecordingSpeakers(_SpeakerOptions):
    diarize: Path | None = option(
        None,
        "Speakers A, B, ... of the words, by two models of sherpa-onnx in this folder; turns word timestamps "
        "on. Runs on this machine.",
        "FOLDER",
        not_with=("as_live",),
    )
    num_speakers: int | None = whole(
        None, 1, math.inf, "Speakers in each recording. Default: they are counted."
    )
    speaker_sample: tuple[tuple[str, Path], ...] = option(
        (),
        "Recording of a speaker's voice alone, 2 to 10 s: this speaker is named NAME. Can be given several "
        "times.",
        "NAME=FILE",
        repeats=True,
        read=_to_sample,
    )

    def finder(self) -> Diarizer | None:
        """Return what finds the speakers; ``None`` without ``--diarize``."""
        if self.diarize is None:
            return None
        with naming("diarize"):
            diarizer = Diarizer(
                self.diarize, num_speakers=self.num_speakers, threshold=self.speaker_threshold
            )
        names = [name for name, _ in self.speaker_sample]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidRequest(f"--speaker-sample names '{twice}' twice: join both recordings into one.")
        return diarizer.knowing(dict(self.speaker_sample))


@dataclass(frozen=True, kw_only=True)
class LiveSpeakerOptions(_SpeakerOptions):
    diarize: Path | None = option(
        None,
        "Speaker A, B, ... of each utterance, by two models of sherpa-onnx in this folder. Runs on this "
        "machine.",
        "FOLDER",
    )
    max_speakers: int | None = whole(None, 1, math.inf, "Most speakers. Default: no limit.")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LiveSpeakers | None]:
        """Yield what names the speakers; ``None`` without ``--diarize``."""
        if self.diarize is None:
            yield None
            return
        with reading(), naming("diarize"):
            diarizer = LiveDiarizer(self.diarize, threshold=self.speaker_threshold)
        try:
            yield LiveSpeakers(diarizer, max_speakers=self.max_speakers)
        finally:
            await diarizer.close()


SPEAKERS_OF_RECORDINGS = Part(kind=RecordingSpeakers, then=RecordingSpeakers.finder, needs=("diarize",))
SPEAKERS_OF_UTTERANCES = Part(kind=LiveSpeakerOptions, needs=("diarize",))
