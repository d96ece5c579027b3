"""Options of ``specwhisper transcribe`` and ``listen`` for speakers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest
from specwhisper_speakers.diarizer import Diarizer
from specwhisper_speakers.live_diarizer import LiveDiarizer
from specwhisper_speakers.live_speakers import LiveSpeakers
from specwhisper_speakers.voices import DEFAULT_THRESHOLD

Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help=f"Distance from which two voices are two speakers. Default: {DEFAULT_THRESHOLD:g}.",
        show_default=False,
    ),
]


def speakers_of_recordings(
    diarize: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Speakers A, B, ... of the words, by two models of sherpa-onnx in this folder; turns word "
            "timestamps on. Runs on this machine.",
        ),
    ] = None,
    num_speakers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Speakers in each recording. Default: they are counted."),
    ] = None,
    speaker_threshold: Threshold = None,
    speaker_sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Recording of a speaker's voice alone, 2 to 10 s: this speaker is named NAME. Can be given "
            "several times.",
        ),
    ] = None,
) -> Diarizer | None:
    """Return what finds the speakers; ``None`` without ``--diarize``."""
    if diarize is None:
        _refuse_unused(
            num_speakers=num_speakers, speaker_sample=speaker_sample, speaker_threshold=speaker_threshold
        )
        return None
    diarizer = Diarizer(diarize, num_speakers=num_speakers, threshold=_threshold(speaker_threshold))
    samples = [_sample(text) for text in speaker_sample or ()]
    names = [name for name, _ in samples]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidRequest(f"--speaker-sample names '{twice}' twice: join both recordings into one.")
    return diarizer.knowing(dict(samples))


@asynccontextmanager
async def speakers_of_utterances(
    diarize: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Speaker A, B, ... of each utterance, by two models of sherpa-onnx in this folder. Runs on "
            "this machine.",
        ),
    ] = None,
    max_speakers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most speakers. Default: no limit.")
    ] = None,
    speaker_threshold: Threshold = None,
) -> AsyncIterator[LiveSpeakers | None]:
    """Yield what names the speakers; ``None`` without ``--diarize``."""
    if diarize is None:
        _refuse_unused(max_speakers=max_speakers, speaker_threshold=speaker_threshold)
        yield None
        return
    diarizer = LiveDiarizer(diarize, threshold=_threshold(speaker_threshold))
    try:
        yield LiveSpeakers(diarizer, max_speakers=max_speakers)
    finally:
        await diarizer.close()


def _threshold(given: float | None) -> float:
    return DEFAULT_THRESHOLD if given is None else given


def _refuse_unused(**options: object) -> None:
    for name, value in options.items():
        if value is not None and value != []:
            flag = name.replace("_", "-")
            raise InvalidRequest(f"--{flag} has no effect without --diarize: set both.")


def _sample(text: str) -> tuple[str, Path]:
    name, separator, file = text.partition("=")
    if not (separator and file):
        raise InvalidRequest(f"--speaker-sample '{text}' is not NAME=FILE: name the speaker and a recording.")
    return name, Path(file)
