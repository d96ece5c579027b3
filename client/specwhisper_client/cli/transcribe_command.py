"""``specwhisper transcribe``: its options, which may also be written as for openai/whisper.

Flags may have the value ``True`` or ``False`` there; ``None`` leaves an option out. An option of
openai/whisper that is not offered is refused with the reason, unless its value changes nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperOption

from specwhisper.audio.speech import check_extra
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.live import EndpointingOptions
from specwhisper.options import NO_BEAMS, DecodingOptions, options_from
from specwhisper.rpc.channels import Credentials
from specwhisper.selection import Selection, VadOptions
from specwhisper.settings.command_line import Program, reading, takes
from specwhisper.settings.setting import offered, part
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.transcription.formats import Layout
from specwhisper.transcription.hint_files import read_hint
from specwhisper.transcription.speakers import TurnFinder
from specwhisper.transcription.transcription import UNSURE_BELOW
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.validated import called, choice, number, option, spelled, switch, whole
from specwhisper_client.cli.arguments import (
    FALLBACK,
    FORMATS_OF_HINTS,
    SPELLING,
    Temperatures,
    decoding_part,
    endpointing_part,
    quiet_option,
    server_option,
)
from specwhisper_client.cli.batch import transcribe_files
from specwhisper_client.cli.jobs import Job
from specwhisper_client.cli.recordings import OutputFormat

SET_AT_SERVER = "{name} is set at the server: see specwhisper-target-server --help; leave it out here."
NOT_OFFERED = "{name} is not offered: leave it out."
ALL = "all"  # formats
INTERRUPTED_STATUS = 130  # a shell's status of a command that Ctrl-C ended
# Options of openai/whisper that are not offered: values that change nothing, and the reason.
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "--patience": (("1", "1.0"), NO_BEAMS),
    "--length-penalty": ((), NO_BEAMS),
    "--best-of": (("1",), "One text is sampled per window, not several: leave best_of out."),
    "--suppress-tokens": (("-1",), "{name} is set in the checkpoint's generation config: leave it out."),
    "--model": ((), SET_AT_SERVER),
    "--model-dir": ((), SET_AT_SERVER),
    "--device": ((), SET_AT_SERVER),
    "--fp16": ((), SET_AT_SERVER),
    "--threads": (("0",), SET_AT_SERVER),
    "--verbose": (("True",), "Leave {name} out; --quiet prints nothing but the text."),
    "--prepend-punctuations": ((), NOT_OFFERED),
    "--append-punctuations": ((), NOT_OFFERED),
    "--clip-timestamps": (("0",), NOT_OFFERED),
}


class OpenAICommand(Program):
    """A command that also accepts options in the form of openai/whisper's command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, TyperOption)]
        switches: dict[str, tuple[list[str], list[str]]] = {}  # flag for True, flag for False
        for each in options:
            if each.is_flag:
                switches |= dict.fromkeys(each.opts, (each.opts[:1], each.secondary_opts[:1]))
                switches |= dict.fromkeys(each.secondary_opts, (each.secondary_opts[:1], each.opts[:1]))
        # Whether None is a value of the option; otherwise it leaves the option out.
        valued = {
            name: (each.metavar or "").endswith("None")
            for each in options
            if not each.is_flag
            for name in each.opts
        }
        with reading():
            translated = list(_translated(args, switches, valued))
        return super().parse_args(ctx, translated)


def _translated(
    args: Sequence[str], switches: Mapping[str, tuple[list[str], list[str]]], valued: Mapping[str, bool]
) -> Iterator[str]:
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            yield from (arg, *rest)
            return
        name, has_value, value = arg.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        following = value if has_value else (rest[0] if rest else "")
        if name in switches:
            if following in ("True", "False"):
                del rest[: not has_value]
                yield from switches[name][following == "False"]
            elif has_value or (following.isalnum() and not Path(following).exists()):
                file = "" if has_value else ", or the name of a file"
                raise InvalidRequest(f"{name} is '{following}': write True or False{file}.")
            else:
                yield arg
        elif name in REFUSED or (following == "None" and valued.get(name) is False):
            harmless, why = REFUSED.get(name, ((), ""))
            if following not in ("None", *harmless):
                raise UnsupportedOption(why.format(name=name.removeprefix("--").replace("-", "_")))
            del rest[: not has_value]
        elif name in valued and not has_value and rest:
            yield from (arg, rest.pop(0))
        else:
            yield arg


def _to_hint(path: str) -> Path | str:
    return Path(path) if path and Path(path).is_dir() else read_hint(path)


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions:
    files: tuple[Path, ...] = option(
        MISSING,
        "Recordings of any audio format, folders of them, and patterns such as '*/*.mp3'.",
        "FILE",
        repeats=True,
        is_argument=True,
    )
    server: str = server_option()
    decoding: Mapping[str, Any] = decoding_part()
    hint: str | Path | None = option(  # a folder, or the text of a file
        None,
        f"{FORMATS_OF_HINTS}; for several recordings a folder of files with their names. It saves time; the "
        "target verifies it.",
        "FILE|FOLDER",
        read=_to_hint,
    )
    selection: Mapping[str, Any] = part(Selection, dict, only_written=True)
    temperatures: Mapping[str, Any] = part(Temperatures, dict, only_written=True)
    vad: VadOptions = part(VadOptions, VadOptions(), prefix="vad", needs=("vad_filter",))
    mode: Mode | None = choice(
        None,
        f"Mode of draft and target: {', '.join(SERVER_MODES[:-1])} or {SERVER_MODES[-1]}. "
        "Default: the server's.",
        "MODE",
        SERVER_MODES,
    )
    gamma: int | None = whole(
        None, 1, MAX_GAMMA, "Draft tokens per block. Default: the server's.", not_with=("as_live",)
    )
    as_live: bool = switch(
        False,
        "Decode as for live audio: pieces cut at pauses in speech, not windows of 30 s. The next five "
        "options set where, as for listen.",
    )
    endpointing: EndpointingOptions = endpointing_part("as_live")
    output_format: str = choice(
        OutputFormat.TXT,
        f"{', '.join(OutputFormat)}, or all, which needs --output-dir.",
        "FORMAT",
        (*OutputFormat, ALL),
        flags=("output-format", "f"),
    )
    output_dir: Path | None = option(
        None,
        "Folder for the transcripts, in the same folders as the recordings below FILE. Default: standard "
        "output.",
        "FOLDER",
        flags=("output-dir", "o"),
    )
    batch_size: int = whole(1, 1, math.inf, "Recordings to transcribe at a time.")
    skip_existing: bool = switch(
        False, "Skip recordings whose transcripts are already in the folder.", needs=("output_dir",)
    )
    layout: Layout = part(Layout, Layout(), needs=("word_timestamps", "diarize"))
    diarizer: TurnFinder | None = offered("speaker_options", "transcribe")
    print_colors: bool = switch(
        False,
        "Colour words on a terminal by probability: green at 0.8 and above, yellow at 0.5 and above, red "
        "below.",
        needs=("word_timestamps",),
        not_with=("as_live", "diarize"),
    )
    unsure_below: float = number(UNSURE_BELOW, 0, 1, "Probability below which unsure lists a word.", "P")
    quiet: bool = quiet_option()

    @property
    def formats(self) -> tuple[OutputFormat, ...]:
        if self.output_format != ALL:
            return (OutputFormat(self.output_format),)
        # One kind of JSON, since all share a file name; unsure needs word times.
        apart = (OutputFormat.VERBOSE_JSON, OutputFormat.DIARIZED_JSON, OutputFormat.UNSURE)
        return tuple(each for each in OutputFormat if each not in apart)

    def options(self) -> DecodingOptions:
        """Return the decoding options.

        Raises
        ------
        InvalidRequest : for a value that an option cannot have, and for options that contradict each other.
        """
        given = {**self.decoding, **self.selection, **self.temperatures}
        if not self.temperatures.get("greedy"):
            given = {**FALLBACK, **given}
        if isinstance(self.hint, str):
            given["hint"] = self.hint
        if self.vad != VadOptions():
            given["vad_parameters"] = self.vad
        if self.diarizer is not None:
            given["word_timestamps"] = True
        with spelled(SPELLING):
            options = options_from({}, given)
        for name in ("top_k", "top_p", "seed"):
            if name in self.decoding and not any(options.temperatures):
                raise InvalidRequest(f"{called(name)} has no effect at temperature 0: add --temperature.")
        return options

    def job(self, credentials: Credentials) -> Job:
        """Return the settings that apply to every file.

        Raises
        ------
        InvalidRequest : for options that have no effect, or contradict each other.
        """
        options, formats = self.options(), self.formats
        if self.diarizer is None and OutputFormat.DIARIZED_JSON in formats:
            raise InvalidRequest("diarized_json needs speakers: add --diarize FOLDER.")
        if OutputFormat.UNSURE in formats and (not options.word_timestamps or self.as_live):
            raise InvalidRequest("unsure needs words of a whole recording: add --word-timestamps.")
        if OutputFormat.UNSURE not in formats and self.unsure_below != UNSURE_BELOW:
            raise InvalidRequest("--unsure-below has no effect without the format unsure: add -f unsure.")
        is_text = self.output_dir is not None or formats[0] is OutputFormat.TXT
        if self.print_colors and (self.batch_size > 1 or not is_text):
            raise InvalidRequest(
                "--print-colors is for the text of one recording after the other: leave --batch-size and "
                "other formats out."
            )
        if options.vad_filter:
            check_extra()  # once, not for each recording
        if len(formats) > 1 and self.output_dir is None:
            raise InvalidRequest("Several formats need a folder: add --output-dir FOLDER.")
        return Job(self, options, formats, credentials)


@takes(TranscribeOptions)
def transcribe(context: typer.Context, wanted: TranscribeOptions) -> None:
    """Transcribe recordings.

    Options have openai/whisper's names, with dashes or underscores. A terminal shows the text as it is
    written; tentative text is dim. Elsewhere standard output gets the final text only.
    Statistics and errors go to standard error. If the command is interrupted, --skip-existing continues it.
    """
    console, errors = Console(), Console(stderr=True)
    with reading():
        job = wanted.job(context.obj)
    try:
        has_all = asyncio.run(transcribe_files(wanted.files, job, console, errors))
    except KeyboardInterrupt:
        if wanted.output_dir is not None:
            errors.print("Interrupted: the same command with --skip-existing transcribes the rest.")
        raise typer.Exit(INTERRUPTED_STATUS) from None
    if not has_all:
        raise typer.Exit(1)
