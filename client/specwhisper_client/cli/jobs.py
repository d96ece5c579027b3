"""Transcribe files one after the other, and describe a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specwhisper.errors import InvalidAudio, SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.transcription.hints.file import find_hint
from specwhisper.transcription.subtitles import Layout
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode
from specwhisper_client import sources
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.display import Display, LiveDisplay, NoDisplay, PlainDisplay, WithProgress
from specwhisper_client.cli.output import OutputFormat, prepare_outputs, render, write
from specwhisper_client.cli.tables import server_table, transcript_table
from specwhisper_client.live_transcription import LiveTranscription, whole_utterances
from specwhisper_client.streaming import StreamingClient


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a transcription that apply to every file.

    Attributes
    ----------
    hints : folder with a hint for each recording of its name.
    mode, gamma : how draft and target work together; ``None`` for the server's own.
    formats : of the transcript; several need an ``output_dir``.
    output_dir : where transcripts are written; ``None`` for standard output.
    layout : of subtitles.
    quiet : print nothing but the text.
    is_streaming : whether recordings are transcribed as live audio, utterance by utterance.
    """

    server: str
    options: DecodingOptions = field(default_factory=DecodingOptions)
    hints: Path | None = None
    mode: Mode | None = None
    gamma: int | None = None
    formats: Sequence[OutputFormat] = (OutputFormat.TXT,)
    output_dir: Path | None = None
    layout: Layout = field(default_factory=Layout)
    quiet: bool = False
    is_streaming: bool = False
    credentials: Credentials = OPEN

    def options_of(self, file: Path) -> DecodingOptions:
        """Return the options of a recording, with its hint."""
        return replace(self.options, hint=find_hint(self.hints, file)) if self.hints else self.options


async def transcribe_files(files: list[Path], job: Job, console: Console, errors: Console) -> bool:
    """Transcribe files one after the other; return whether none failed.

    Files that do not exist are reported first, all at once. A file that fails later is reported in its turn,
    and the others continue.
    """
    try:
        outputs: list[dict[OutputFormat, Path]] = [{} for _ in files]
        if job.output_dir is not None:
            outputs = prepare_outputs(files, job.output_dir, job.formats)
        failed = [file for file in files if not file.exists()]
        if failed:
            report(_missing(failed), errors)
        async with TranscriptionClient(job.server, job.credentials) as client:
            for file, its_outputs in zip(files, outputs, strict=True):
                if file in failed:
                    continue
                if len(files) > 1 and not job.quiet:
                    errors.print(Text(str(file), "bold"))
                try:
                    await _transcribe_file(client, file, its_outputs, job, console, errors)
                except SpecWhisperError as error:
                    report(error, errors, file if len(files) > 1 else None)
                    failed.append(file)
    except SpecWhisperError as error:
        report(error, errors)
        return False
    if failed and len(files) > 1:
        names = ", ".join(map(str, failed))
        errors.print(Text(f"{len(failed)} of {len(files)} files failed: {names}", "red"), soft_wrap=True)
    return not failed


def _missing(files: Sequence[Path]) -> InvalidAudio:
    """Return the error for files that do not exist."""
    if len(files) == 1:
        return InvalidAudio(f"Audio file '{files[0]}' does not exist.")
    names = ", ".join(f"'{file}'" for file in files)
    return InvalidAudio(f"{len(files)} audio files do not exist: {names}.")


async def show_server(
    server: str, console: Console, errors: Console, credentials: Credentials = OPEN
) -> bool:
    """Print a server's models; return whether it answered."""
    try:
        async with TranscriptionClient(server, credentials) as client:
            console.print(server_table(await client.get_model()))
    except SpecWhisperError as error:
        report(error, errors)
        return False
    return True


async def _transcribe_file(
    client: TranscriptionClient,
    file: Path,
    outputs: Mapping[OutputFormat, Path],
    job: Job,
    console: Console,
    errors: Console,
) -> None:
    transcript = await _show(client, file, job, console, errors)
    for form in job.formats:
        if job.output_dir is not None:
            write(outputs[form], render(transcript, file, form, job.layout))
        elif form is not OutputFormat.TXT:  # text was printed while it ran
            console.file.write(render(transcript, file, form, job.layout))
    if not job.quiet:
        errors.print(transcript_table(transcript))


async def _show(
    client: TranscriptionClient, file: Path, job: Job, console: Console, errors: Console
) -> Transcription:
    """Transcribe a file and show its text meanwhile."""
    display = _choose_display(job, console, errors)
    is_live = isinstance(display, LiveDisplay)
    if job.is_streaming:
        stream = StreamingClient(
            job.server,
            job.options_of(file),
            mode=job.mode,
            gamma=job.gamma,
            interim_results=is_live,
            credentials=job.credentials,
        )
        async with stream:
            live = LiveTranscription(stream, sources.file(file, is_paced=False))
            with display:
                async for update in whole_utterances(live):
                    display.show(update)
            return live.result
    transcription = client.stream_file(
        file, job.options_of(file), mode=job.mode, gamma=job.gamma, interim_results=is_live
    )
    with display:
        async for update in transcription:
            display.show(update)
    return transcription.result


def _choose_display(job: Job, console: Console, errors: Console) -> Display:
    """Choose how text is shown while it is written: live, as lines, or not."""
    text_goes_to_stdout = job.output_dir is None and job.formats[0] is OutputFormat.TXT
    if console.is_terminal and not job.quiet and (text_goes_to_stdout or job.output_dir is not None):
        return LiveDisplay(console, timestamps=job.options.timestamps)
    display = PlainDisplay(console.file) if text_goes_to_stdout else NoDisplay()
    return WithProgress(display, errors) if errors.is_interactive and not job.quiet else display


def report(error: SpecWhisperError, errors: Console, file: Path | None = None) -> None:
    """Print an error, with the file's name if the error does not have it."""
    name = f"{file}: " if file is not None and str(file) not in str(error) else ""
    errors.print(Text.assemble(("error: ", "bold red"), name, str(error)), soft_wrap=True)
