"""Options of ``specwhisper transcribe`` and ``listen`` for speakers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest
from specwhisper.speakers.diarizer import Diarizer
from specwhisper.speakers.live_diarizer import LiveDiarizer
from specwhisper.speakers.voices import DEFAULT_THRESHOLD

Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help=f"Distance from which two voices are two speakers. Default: {DEFAULT_THRESHOLD:g}.",
        show_default=False,
    ),
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
    speaker_threshold: Threshold = None
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
            _refuse_unused(
                {
                    "--num-speakers": self.num_speakers,
                    "--speaker-sample": self.speaker_sample,
                    "--speaker-threshold": self.speaker_threshold,
                }
            )
            return None
        threshold = DEFAULT_THRESHOLD if self.speaker_threshold is None else self.speaker_threshold
        diarizer = Diarizer(self.diarize, num_speakers=self.num_speakers, threshold=threshold)
        samples = [_sample(text) for text in self.speaker_sample or ()]
        names = [name for name, _ in samples]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidRequest(f"--speaker-sample names '{twice}' twice: join both recordings into one.")
        return diarizer.knowing(dict(samples))


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
    speaker_threshold: Threshold = None

    def diarizer(self) -> LiveDiarizer | None:
        """Return what finds voices; ``None`` without ``--diarize``."""
        if self.diarize is None:
            _refuse_unused(
                {"--max-speakers": self.max_speakers, "--speaker-threshold": self.speaker_threshold}
            )
            return None
        threshold = DEFAULT_THRESHOLD if self.speaker_threshold is None else self.speaker_threshold
        return LiveDiarizer(self.diarize, threshold=threshold)


def _refuse_unused(options: Mapping[str, object]) -> None:
    for name in (name for name, value in options.items() if value is not None and value != []):
        raise InvalidRequest(f"{name} has no effect without --diarize: set both.")


def _sample(text: str) -> tuple[str, Path]:
    name, separator, file = text.partition("=")
    if not (separator and file):
        raise InvalidRequest(f"--speaker-sample '{text}' is not NAME=FILE: name the speaker and a recording.")
    return name, Path(file)
