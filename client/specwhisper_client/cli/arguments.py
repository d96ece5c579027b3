"""Options that several commands have, and the names of options in errors."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Annotated

import typer

from specwhisper.errors import InvalidRequest, MissingExtra, SpecWhisperError
from specwhisper.live import EndpointingOptions
from specwhisper.options import DecodingOptions, Padding, Task, WordTimes
from specwhisper.selection import VadOptions
from specwhisper.settings.choices import one_of
from specwhisper.transcription.hint_files import read_hint
from specwhisper.types import LIVE_MODES, SERVER_MODES, Mode

TOKEN_VARIABLE = "SPECWHISPER_TOKEN"
Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Addresses of draft servers, or locator:///HOST:PORT, which lists them.",
    ),
]
Gamma = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Draft tokens per block. Default: the server's.")
]
Hint = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Text that the audio is believed to say: captions (srt, vtt, ass, ttml) or plain text. It saves "
        "time; the target verifies it.",
    ),
]
Hints = Annotated[
    str,
    typer.Option(
        "--hint",
        metavar="FILE|FOLDER",
        help="Text that the audio is believed to say: captions (srt, vtt, ass, ttml) or plain text; "
        "for several recordings a folder of files with their names. It saves time; the target verifies it.",
    ),
]
TaskOption = Annotated[
    Task,
    typer.Option(
        "--task",
        parser=one_of(Task),
        metavar="TASK",
        help="Task: transcribe, or translate into English.",
    ),
]
PaddingOption = Annotated[
    Padding,
    typer.Option(
        "--padding",
        parser=one_of(Padding),
        metavar="silence|zero",
        help="Content of windows after the end of the audio: silence, as transformers, or features of 0, "
        "as OpenAI and faster-whisper.",
    ),
]
WordTimesOption = Annotated[
    WordTimes,
    typer.Option(
        "--word-times",
        parser=one_of(WordTimes),
        metavar="sound|model",
        help="Times of words, trimmed to the sound, or as cross-attention has them, as in transformers.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refusal of recordings that lack something, such as damaged files. Default: a warning.",
    ),
]
Channel = Annotated[
    str,
    typer.Option(
        metavar="mix|left|right|N",
        help="Channel of the audio: all of them mixed, or one; N counts from 1.",
    ),
]
AudioTrack = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Audio track of a file, from 1 on (FFmpeg's 0:a:0). Default: the file's own."
    ),
]
ContainerTimes = Annotated[
    bool,
    typer.Option(
        help="Times of the container: a late start of the audio and gaps in it are silence. Otherwise what "
        "was recorded is joined.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No output but the text.")]


Languages = Annotated[
    str,
    typer.Option(metavar="CODES", help="Languages that may be spoken, as en,fr,de: no other is detected."),
]


def hint_of(file: str) -> str:
    """Return the text of a hint's file; empty without one."""
    return read_hint(file) if file else ""


ServerMode = Annotated[
    Mode | None,
    typer.Option(
        parser=one_of(SERVER_MODES),
        metavar="MODE",
        help=f"Mode of draft and target: {', '.join(SERVER_MODES[:-1])} or {SERVER_MODES[-1]}. "
        "Default: the server's.",
    ),
]
LiveMode = Annotated[
    Mode | None,
    typer.Option(
        parser=one_of(LIVE_MODES),
        metavar="MODE",
        help="With the draft, full, or target-only. Default: the server's.",
    ),
]

NO_FLAGS = ("live", "log_mel_max")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


NAMES = (
    {field.name: _flag(field.name) for field in fields(DecodingOptions) if field.name not in NO_FLAGS}
    | {"temperatures": "--temperature", "max_initial_timestamp_s": "--max-initial-timestamp"}
    | {name: _flag(name) for name in ("temperature", "temperature_increment_on_fallback")}
    | {field.name: _flag(f"vad_{field.name}") for field in fields(VadOptions)}
    | {"timestamps": "--timestamps", "vad_parameters": "--vad-threshold and the like"}
)


def described(error: SpecWhisperError) -> str:
    """Return an error's text with the names of this command line.

    A name of one word, such as language, is a name only at the text's beginning.
    """
    text = str(error)
    if not isinstance(error, InvalidRequest | MissingExtra):
        return text
    return re.sub(
        r"^[a-z]+(?= is )|\b[a-z]+(?:_[a-z]+)+\b", lambda found: NAMES.get(found[0], found[0]), text
    )


@dataclass(frozen=True, kw_only=True)
class Endpointing:
    """When utterances end: of :class:`EndpointingOptions`."""

    threshold: Annotated[
        float, typer.Option(metavar="P", help="Probability above which audio is speech.")
    ] = EndpointingOptions().threshold
    silence_duration_ms: Annotated[
        int, typer.Option(metavar="MS", help="Milliseconds of silence that end an utterance.")
    ] = EndpointingOptions().silence_duration_ms
    short_silence_ms: Annotated[
        int,
        typer.Option(
            metavar="MS",
            help="Milliseconds of silence that end a short utterance, if longer than --silence-duration-ms.",
        ),
    ] = EndpointingOptions().short_silence_ms
    min_utterance_ms: Annotated[
        int, typer.Option(metavar="MS", help="An utterance with less speech is short, in milliseconds.")
    ] = EndpointingOptions().min_utterance_ms
    max_piece_ms: Annotated[
        int, typer.Option(metavar="MS", help="A longer utterance is cut at its best pause, in milliseconds.")
    ] = EndpointingOptions().max_piece_ms

    def options(self) -> EndpointingOptions:
        """Return them, checked."""
        try:
            return EndpointingOptions(**asdict(self))
        except InvalidRequest as error:
            name, _, problem = str(error).partition(" ")
            raise InvalidRequest(f"{_flag(name)} {problem}") from None

    def refuse(self) -> None:
        """Raise :class:`InvalidRequest` if one is set: the command decodes no live audio."""
        for option in fields(self):
            if getattr(self, option.name) != option.default:
                raise InvalidRequest(f"{_flag(option.name)} has no effect without --as-live: set both.")
