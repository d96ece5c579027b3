"""``specwhisper transcribe``: its options."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specwhisper.audio.vad_filter import check_extra
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.options import DecodingOptions, Task, WordTimes, options_from
from specwhisper.rpc.channels import Credentials
from specwhisper.selection import MIX, VadOptions
from specwhisper.transcription.formats import Layout
from specwhisper.transcription.speakers import TurnFinder
from specwhisper.transcription.transcription import UNSURE_BELOW
from specwhisper_client.cli.arguments import (
    AudioTrack,
    Channel,
    ContainerTimes,
    Endpointing,
    Gamma,
    Hints,
    Languages,
    PaddingOption,
    Quiet,
    Server,
    ServerMode,
    Strict,
    TaskOption,
    WordTimesOption,
    hint_of,
)
from specwhisper_client.cli.batch import transcribe_files
from specwhisper_client.cli.fallback_options import Fallback
from specwhisper_client.cli.grouped_options import OptionsOfExtra, takes
from specwhisper_client.cli.jobs import Job, report
from specwhisper_client.cli.output import OutputFormat
from specwhisper_client.servers import DEFAULT_SERVER

SpeakersOption = Annotated[Callable[[], TurnFinder | None], OptionsOfExtra("speaker_options", "transcribe")]
INTERRUPTED_STATUS = 130  # as of a shell's command that Ctrl-C ended


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Decoding options, by the names of openai/whisper's command line."""

    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Code or name of the language; en-US is en. Default: the model's own, or the detected one.",
        ),
    ] = None
    multilingual: Annotated[
        bool,
        typer.Option("--multilingual", help="Language detected in every window, not only in the first."),
    ] = False
    languages: Languages = ""
    task: TaskOption = Task.TRANSCRIBE
    timestamps: Annotated[bool, typer.Option(help="Times of segments.")] = True
    word_timestamps: Annotated[bool, typer.Option("--word-timestamps", help="Times of words.")] = False
    word_times: WordTimesOption = WordTimes.SOUND
    initial_prompt: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Prompt of every window; with --condition-on-previous-text, of the first one only.",
        ),
    ] = ""
    carry_initial_prompt: Annotated[
        bool, typer.Option("--carry-initial-prompt", help="Initial prompt in every window, before others.")
    ] = False
    hotwords: Annotated[str, typer.Option(metavar="TEXT", help="Words in the prompt of every window.")] = ""
    hint: Hints = ""
    vad_filter: Annotated[
        bool,
        typer.Option(
            "--vad-filter",
            help="Transcription of speech only, as silero-vad's model finds it. Needs the extra vad.",
        ),
    ] = False
    condition_on_previous_text: Annotated[
        bool, typer.Option("--condition-on-previous-text", help="Previous text as prompt of each window.")
    ] = False
    padding: PaddingOption = DecodingOptions().padding
    strict: Strict = False
    channel: Channel = MIX
    audio_track: AudioTrack = None
    container_times: ContainerTimes = True
    fallback: Fallback = Fallback()  # noqa: RUF009  # it is frozen
    top_k: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of likeliest tokens to sample among; 0: all.")
    ] = 0
    top_p: Annotated[
        float, typer.Option(metavar="P", help="Total probability of the likeliest tokens to sample among.")
    ] = 1.0
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of sampling; the same seed results in the same text."),
    ] = 0
    hallucination_silence_threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Silence between which segments that are probably invented are left out; needs "
            "--word-timestamps.",
        ),
    ] = None
    max_initial_timestamp: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Latest start of a window's first segment. Default: the model's."
        ),
    ] = None
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-new-tokens",
            "--max-tokens",
            min=1,
            metavar="N",
            help="Most tokens of a window. Default: the model's.",
        ),
    ] = None
    acceptance_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="LOSSY: target's probability from which a candidate is kept that is not the target's "
            "choice. Default: none.",
        ),
    ] = None
    beam_size: Annotated[int, typer.Option(hidden=True)] = 1

    def options(self) -> DecodingOptions:
        """Return them, checked."""
        hint = "" if self.hint_folder else hint_of(self.hint)
        given = asdict(self) | {"hint": hint}
        del given["fallback"]
        return options_from(self.fallback.options(), given)

    @property
    def hint_folder(self) -> Path | None:
        """The folder that ``hint`` names; ``None`` for a file."""
        return Path(self.hint) if self.hint and Path(self.hint).is_dir() else None


@dataclass(frozen=True, kw_only=True)
class Vad:
    """Options of VAD, by the names of whisper-ctranslate2."""

    vad_threshold: Annotated[
        float, typer.Option(metavar="P", help="Probability from which audio is speech.")
    ] = 0.5
    vad_neg_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Probability below which speech ends. Default: 0.15 below --vad-threshold."
        ),
    ] = None
    vad_min_speech_duration_ms: Annotated[
        int, typer.Option(metavar="MS", help="Shortest speech that is kept, in milliseconds.")
    ] = 0
    vad_max_speech_duration_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Longest speech in one piece: longer speech is cut at a silence."
        ),
    ] = math.inf
    vad_min_silence_duration_ms: Annotated[
        int,
        typer.Option(metavar="MS", help="Shortest silence that separates speech, in milliseconds."),
    ] = 2000
    vad_speech_pad_ms: Annotated[
        int, typer.Option(metavar="MS", help="Silence kept at either side of speech, in milliseconds.")
    ] = 400

    def parameters(self) -> VadOptions | None:
        """Return them, checked; ``None`` if they are the defaults."""
        options = VadOptions(**{name.removeprefix("vad_"): value for name, value in asdict(self).items()})
        return None if options == VadOptions() else options


@dataclass(frozen=True, kw_only=True)
class Subtitles:
    """Options of srt and vtt."""

    max_line_width: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most characters in a line of srt and vtt, with word timestamps."),
    ] = None
    max_line_count: Annotated[
        int | None, typer.Option(metavar="N", help="Most lines in a cue, which then may span segments.")
    ] = None
    max_words_per_line: Annotated[
        int | None, typer.Option(metavar="N", help="Most words in a cue of srt and vtt.")
    ] = None
    highlight_words: Annotated[
        bool, typer.Option("--highlight-words", help="Underlined current word in srt and vtt.")
    ] = False

    def layout(self) -> Layout:
        """Return them, checked."""
        return Layout(**asdict(self))


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions:
    """All options of the command."""

    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Recordings of any audio format, folders of them, and patterns such as '*/*.mp3'.",
        ),
    ]
    server: Server = DEFAULT_SERVER
    decoding: Decoding
    vad: Vad
    mode: ServerMode = None
    gamma: Gamma = None
    as_live: Annotated[
        bool,
        typer.Option(
            "--as-live",
            help="Decoding as of live audio: cuts at pauses of speech, not windows of 30 s. The five options "
            "after it set where, as for listen.",
        ),
    ] = False
    endpointing: Endpointing
    output_format: Annotated[
        str,
        typer.Option(
            "--output-format",
            "-f",
            metavar="FORMAT",
            help=f"{', '.join(OutputFormat)}, or all, which needs --output-dir.",
        ),
    ] = OutputFormat.TXT
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            file_okay=False,
            metavar="FOLDER",
            help="Folder for the transcripts, in the same folders as the recordings below FILE. Default: "
            "standard output.",
        ),
    ] = None
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Recordings that are transcribed at a time.")
    ] = 1
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing", help="Only the recordings whose transcripts are not in the folder yet."
        ),
    ] = False
    subtitles: Subtitles
    speakers: SpeakersOption = lambda: None
    print_colors: Annotated[
        bool,
        typer.Option(
            "--print-colors",
            help="Words on a terminal in the colour of their probability: green from 0.8 on, yellow from 0.5 "
            "on, red below.",
        ),
    ] = False
    unsure_below: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="P", help="Probability below which unsure lists a word."),
    ] = UNSURE_BELOW
    quiet: Quiet = False

    def job(self, credentials: Credentials) -> Job:
        """Return the settings that apply to every file.

        Raises
        ------
        InvalidRequest : for a value that an option cannot have, and for options that contradict each other.
        """
        diarizer = self.speakers()
        decoding = self.decoding
        if diarizer is not None:
            decoding = replace(decoding, word_timestamps=True)
        options = options_from(decoding.options(), {"vad_parameters": self.vad.parameters()})
        layout = self.subtitles.layout()
        if layout != Layout() and not options.word_timestamps:
            raise InvalidRequest("Lines are laid out by their words: add --word-timestamps.")
        formats = parse_formats(self.output_format)
        if diarizer is None and OutputFormat.DIARIZED_JSON in formats:
            raise InvalidRequest("diarized_json needs speakers: add --diarize FOLDER.")
        for_recordings = {
            "--diarize": diarizer is not None,
            "--vad-filter": options.vad_filter,
            "--gamma": self.gamma is not None,
        }
        for name in (name for name, is_given in for_recordings.items() if is_given and self.as_live):
            raise InvalidRequest(f"{name} is for whole recordings: leave it or --as-live out.")
        needs_words = {"--print-colors": self.print_colors, "unsure": OutputFormat.UNSURE in formats}
        for name in (name for name, is_wanted in needs_words.items() if is_wanted):
            if not options.word_timestamps or self.as_live:
                raise InvalidRequest(f"{name} needs words of a whole recording: add --word-timestamps.")
        is_text = self.output_dir is not None or formats[0] is OutputFormat.TXT
        if self.print_colors and (diarizer is not None or self.batch_size > 1 or not is_text):
            raise InvalidRequest(
                "--print-colors is for the text of one recording after the other: leave --diarize, "
                "--batch-size and other formats out."
            )
        if not self.as_live:
            self.endpointing.refuse()
        if options.vad_filter:
            check_extra()  # once, not for each recording
        if len(formats) > 1 and self.output_dir is None:
            raise InvalidRequest("Several formats need a folder: add --output-dir FOLDER.")
        if self.skip_existing and self.output_dir is None:
            raise InvalidRequest("Without a folder no transcript exists: add --output-dir FOLDER.")
        return Job(
            self.server,
            options,
            self.decoding.hint_folder,
            self.mode,
            self.gamma,
            formats,
            self.output_dir,
            layout,
            self.unsure_below,
            self.print_colors,
            self.quiet,
            self.endpointing.options() if self.as_live else None,
            self.batch_size,
            self.skip_existing,
            credentials,
            diarizer,
        )


@takes(TranscribeOptions)
def transcribe(context: typer.Context, wanted: TranscribeOptions) -> None:
    """Transcribe recordings.

    Options have openai/whisper's names, with dashes or underscores. A terminal shows the text as it is
    written; tentative text is dim. Elsewhere standard output gets the final text only.
    Statistics and errors go to standard error. If the command is interrupted, --skip-existing continues it.
    """
    console, errors = Console(), Console(stderr=True)
    try:
        job = wanted.job(context.obj)
    except SpecWhisperError as error:
        raise typer.Exit(report(error, errors)) from None
    try:
        has_all = asyncio.run(transcribe_files(wanted.files, job, console, errors))
    except KeyboardInterrupt:
        if job.output_dir is not None:
            errors.print("Interrupted: the same command with --skip-existing transcribes the rest.")
        raise typer.Exit(INTERRUPTED_STATUS) from None
    if not has_all:
        raise typer.Exit(1)


def parse_formats(name: str) -> tuple[OutputFormat, ...]:
    """Read a format, or all of them."""
    if name == "all":  # one kind of JSON: all would be written to the same file; unsure needs word times
        apart = (OutputFormat.VERBOSE_JSON, OutputFormat.DIARIZED_JSON, OutputFormat.UNSURE)
        return tuple(each for each in OutputFormat if each not in apart)
    if name in list(OutputFormat):
        return (OutputFormat(name),)
    raise typer.BadParameter(f"'{name}' is none of {', '.join(OutputFormat)}, all.")
