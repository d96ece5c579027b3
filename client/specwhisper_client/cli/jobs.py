"""Transcribe one recording of a command, choose how it is shown, and report errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from specwhisper.audio.damage import Warnings
from specwhisper.audio.decode import decode_file
from specwhisper.errors import DiarizationFailed, SpecWhisperError, Unauthenticated
from specwhisper.extras import needs_extra
from specwhisper.options import DecodingOptions
from specwhisper.printable import escaped
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.tasks import beside
from specwhisper.transcription.hint_files import find_hint, read_hint
from specwhisper.transcription.speakers import Turn, TurnFinder
from specwhisper.transcription.transcription import Transcription
from specwhisper_client import sources
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.display import Bar, Display, LiveDisplay
from specwhisper_client.cli.recordings import OutputFormat, RecordingFile, render
from specwhisper_client.live_transcription import LiveTranscription, whole_utterances
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

if TYPE_CHECKING:
    from specwhisper_client.cli.transcribe_command import TranscribeOptions

TOKEN_VARIABLE = "SPECWHISPER_TOKEN"
HOW_TO_TOKEN = f" Put --token-file FILE before the command, or set ${TOKEN_VARIABLE}."


@dataclass(frozen=True, slots=True)
class Job:
    """A command's options as they apply to every file, and what was read of them.

    Attributes
    ----------
    diarization : held while a recording's speakers are found: that takes a core and the memory of its
        samples.
    """

    wanted: TranscribeOptions
    options: DecodingOptions
    formats: Sequence[OutputFormat]
    credentials: Credentials = OPEN
    diarization: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, 1))

    def rendered(self, transcript: Transcription, recording: RecordingFile, form: OutputFormat) -> str:
        return render(transcript, recording.path, form, self.wanted.layout, self.wanted.unsure_below)

    def options_of(self, recording: RecordingFile) -> DecodingOptions:
        path = self.hint_of(recording)
        return self.options if path is None else replace(self.options, hint=read_hint(path))

    def hint_of(self, recording: RecordingFile) -> Path | None:
        """Return the hint of a recording's name, if the option is a folder of them."""
        hints = self.wanted.hint
        return find_hint(hints / recording.folder, recording.path) if isinstance(hints, Path) else None


async def transcribe_one(
    client: TranscriptionClient,
    recording: RecordingFile,
    job: Job,
    show: Callable[[Update], None],
    *,
    interim_results: bool = False,
) -> tuple[Transcription, DiarizationFailed | None]:
    """Transcribe a recording, and find its speakers at the same time.

    Parameters
    ----------
    show : called with each update.

    Returns
    -------
    The transcription, and the reason if its speakers could not be found.
    """
    if job.wanted.diarizer is None:
        return await _transcribe(client, recording, job, show, interim_results=interim_results), None
    async with beside(partial(_turns, job, job.wanted.diarizer, recording)) as turns:
        transcript = await _transcribe(client, recording, job, show, interim_results=interim_results)
        found = await turns
    if isinstance(found, DiarizationFailed):
        return transcript, found
    return transcript.with_speakers(found), None


async def _turns(
    job: Job, diarizer: TurnFinder, recording: RecordingFile
) -> Sequence[Turn] | DiarizationFailed:
    async with job.diarization:
        try:
            return await diarizer.turns_of(partial(decode_file, recording.path, selection=job.options))
        except DiarizationFailed as error:  # the text is kept
            remedy = (
                "" if job.wanted.output_dir is None else ": delete it before you repeat with --skip-existing"
            )
            return DiarizationFailed(f"{error} The transcript has no speakers{remedy}.")


async def _transcribe(
    client: TranscriptionClient,
    recording: RecordingFile,
    job: Job,
    show: Callable[[Update], None],
    *,
    interim_results: bool,
) -> Transcription:
    options = job.options_of(recording)
    if job.wanted.as_live:
        stream = StreamingClient(
            options=options.for_pcm(),
            endpointing=job.wanted.endpointing,
            mode=job.wanted.mode,
            interim_results=interim_results,
            servers=client.servers,
        )
        async with stream:
            warnings = Warnings(is_strict=options.strict)
            audio = sources.file(recording.path, is_paced=False, warn=warnings, selection=options)
            live = LiveTranscription(stream, audio)
            async with aclosing(whole_utterances(live)) as updates:
                async for update in updates:
                    show(update)
            return replace(live.result, warnings=warnings.sentences)
    transcription = client.stream_file(
        recording.path, options, mode=job.wanted.mode, gamma=job.wanted.gamma, interim_results=interim_results
    )
    async with aclosing(aiter(transcription)) as updates:
        async for update in updates:
            show(update)
    return transcription.result


def choose_display(job: Job, console: Console, errors: Console) -> Display | LiveDisplay:
    """Choose how text is shown while it is written: live, as lines, or not.

    Text with speakers is shown once they are known.
    """
    wanted = job.wanted
    text_goes_to_stdout = (
        wanted.output_dir is None and job.formats[0] is OutputFormat.TXT and wanted.diarizer is None
    )
    if console.is_terminal and not wanted.quiet and (text_goes_to_stdout or wanted.output_dir is not None):
        return LiveDisplay(console, timestamps=job.options.timestamps, colors=wanted.print_colors)
    bar = Bar(errors) if errors.is_interactive and not wanted.quiet else None
    return Display(console.file if text_goes_to_stdout else None, bar)


def report(error: SpecWhisperError | str, errors: Console, file: Path | None = None) -> None:
    """Print an error; ``file`` is named if the error does not name it."""
    name = f"{file}: " if file is not None and str(file) not in str(error) else ""
    remedy = HOW_TO_TOKEN if isinstance(error, Unauthenticated) else ""
    text = escaped(f"{name}{error}{remedy}")
    errors.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def warn(transcript: Transcription, errors: Console) -> None:
    for sentence in transcript.warnings:
        errors.print(Text.assemble(("warning: ", "bold yellow"), sentence), soft_wrap=True)


def imported(module: str, command: str, extras: str) -> Any:
    """Import a module that needs libraries of an extra: models, or Ray."""
    with needs_extra(command, extras):
        return import_module(module)
