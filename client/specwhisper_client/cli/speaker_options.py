"""Options of ``specwhisper transcribe`` and ``listen`` for speakers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest
from specwhisper.speakers.diarizer import Diarizer
from specwhisper.speakers.live_diarizer import LiveDiarizer

Threshold = Annotated[
    float, typer.Option(metavar="D", help="Distance from which two voices are two speakers.")
]


@dataclass(frozen=True, kw_only=True)
class Speakers:
    """Options of speaker diarization."""

    diarize: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Speakers A, B, ... of the words, by two models of sherpa-onnx in this folder; turns word "
            "timestamps on. Runs on this machine.",
        ),
    ] = None
    num_speakers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Speakers in each recording. Default: they are counted."),
    ] = None
    speaker_threshold: Annotated[
        float,
        typer.Option(
            metavar="D", help="Distance from which two voices are two speakers, without --num-speakers."
        ),
    ] = 0.5

    speaker_sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Recording of a speaker's voice alone, 2 to 10 s: this speaker is named NAME. Can be given "
            "several times.",
        ),
    ] = None

    def diarizer(self) -> Diarizer | None:
        """Return what finds the speakers; ``None`` without ``--diarize``."""
        if self.diarize is None:
            unused = {
                "--num-speakers": self.num_speakers is not None,
                "--speaker-sample": bool(self.speaker_sample),
            }
            for name in (name for name, is_set in unused.items() if is_set):
                raise InvalidRequest(f"{name} has no effect without --diarize: set both.")
            return None
        diarizer = Diarizer(self.diarize, num_speakers=self.num_speakers, threshold=self.speaker_threshold)
        return diarizer.knowing(dict(map(_sample, self.speaker_sample or ())))


@dataclass(frozen=True, kw_only=True)
class SpeakersOfUtterances:
    """Options of speaker diarization of live audio."""

    diarize: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Speaker A, B, ... of each utterance, by two models of sherpa-onnx in this folder. Runs on "
            "this machine.",
        ),
    ] = None
    max_speakers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most speakers. Default: no limit.")
    ] = None
    speaker_threshold: Threshold = 0.5

    def diarizer(self) -> LiveDiarizer | None:
        """Return what finds voices; ``None`` without ``--diarize``."""
        if self.diarize is None:
            if self.max_speakers is not None:
                raise InvalidRequest("--max-speakers has no effect without --diarize: set both.")
            return None
        return LiveDiarizer(self.diarize, threshold=self.speaker_threshold)


def _sample(text: str) -> tuple[str, Path]:
    name, separator, file = text.partition("=")
    if not (separator and file):
        raise InvalidRequest(f"--speaker-sample '{text}' is not NAME=FILE: name the speaker and a recording.")
    return name, Path(file)
