"""Transcribe the recordings of a command, several at a time, with progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specwhisper.audio.decode import no_such_file, stated_duration_s
from specwhisper.errors import (
    DiarizationFailed,
    InvalidRequest,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
    Unauthenticated,
)
from specwhisper.printable import escaped, print_table
from specwhisper.rpc.failover import Failover
from specwhisper.transcription.transcription import Transcription
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.display import Bar, LiveDisplay, clock, show_speakers, speed
from specwhisper_client.cli.jobs import Job, choose_display, report, transcribe_one, warn
from specwhisper_client.cli.output import OutputFormat, prepare_outputs, write
from specwhisper_client.cli.recordings import RecordingFile, find_recordings
from specwhisper_client.cli.tables import transcript_table
from specwhisper_client.file_transcription import RESUME_TIMEOUT_S

Outputs = Mapping[OutputFormat, Path]


async def transcribe_files(arguments: Sequence[Path], job: Job, console: Console, errors: Console) -> bool:
    """Transcribe all recordings that arguments name; return whether none failed.

    Arguments that name no recording are reported first. If a recording fails, its error is
    reported in order and the others continue. If the server fails, none is begun: it would fail too.
    """
    recordings, without = find_recordings(arguments)
    for argument in without:
        is_empty = argument.is_dir()
        report(f"The folder '{argument}' has no recordings." if is_empty else no_such_file(argument), errors)
    failed = list(without)
    num_all = len(recordings) + len(without)
    outputs: list[Outputs] = [{} for _ in recordings]
    try:
        if job.options.hint and len(recordings) > 1:
            raise InvalidRequest(
                "--hint FILE is the text of one recording: for several, pass a folder that holds NAME.srt, "
                "NAME.vtt or NAME.txt for each."
            )
        if job.wanted.print_colors and job.wanted.output_dir is not None and num_all > 1:
            raise InvalidRequest(
                "--print-colors is for text on the terminal, where --output-dir shows a bar for several "
                "recordings: leave one of them out."
            )
        if job.wanted.output_dir is not None:
            outputs = list(prepare_outputs(recordings, job.wanted.output_dir, job.formats))
        work = list(zip(recordings, outputs, strict=True))
        if job.wanted.skip_existing:
            work = [each for each in work if not all(path.exists() for path in each[1].values())]
            if not job.wanted.quiet:
                num_done = len(recordings) - len(work)
                errors.print(f"{num_done} of {num_all} recordings have their transcripts already.")
        if isinstance(job.wanted.hint, Path) and work and not job.wanted.quiet:
            num_hints = sum(job.hint_of(recording) is not None for recording, _ in work)
            errors.print(f"{num_hints} of {len(work)} recordings have a hint.", highlight=False)
        async with TranscriptionClient(job.wanted.server, job.credentials) as client:
            failed += await _Batch(client, work, job, console, errors, has_others=num_all > 1).run()
    except SpecWhisperError as error:
        report(error, errors)
        return False
    if failed and num_all > 1:
        names = escaped(", ".join(map(str, failed)))
        errors.print(Text(f"{len(failed)} of {num_all} files failed: {names}", "red"), soft_wrap=True)
    return not failed


def _is_of_server(error: SpecWhisperError) -> bool:
    return type(error) in (TargetUnavailable, Unauthenticated)  # not OutOfMemory: others may be shorter


class _Batch:
    """Transcribes recordings, ``--batch-size`` at a time.

    With an output folder, each transcript is written as soon as it is complete. Without one, transcripts are
    printed in the order of the recordings. One recording after the other shows its text while it is written,
    unless there is a folder for several.

    If a server that has transcribed a recording is lost, the others wait for it for :data:`RESUME_TIMEOUT_S`,
    where no text is shown. If it stays down, no other recording is begun.
    """

    def __init__(
        self,
        client: TranscriptionClient,
        work: Sequence[tuple[RecordingFile, Outputs]],
        job: Job,
        console: Console,
        errors: Console,
        *,
        has_others: bool,
    ) -> None:
        self._client = client
        self._work = work
        self._job = job
        self._wanted = job.wanted
        self._console = console
        self._errors = errors
        self._has_others = has_others
        self._shows_text = job.wanted.batch_size == 1 and not (has_others and job.wanted.output_dir)
        is_shown = errors.is_terminal and not (job.wanted.quiet or self._shows_text)
        self._bar = Bar(errors, is_shown=is_shown)
        self._bar.durations = [None for _ in work]
        self._failed: list[Path] = []
        self._num_begun = self._num_done = self._num_running = 0
        self._failover = Failover(RESUME_TIMEOUT_S)
        self._ended_by: SpecWhisperError | None = None
        self._one_ended = asyncio.Event()  # replaced whenever it is set
        self._texts: dict[int, str] = {}  # complete, in the order of the recordings from _num_printed on
        self._num_printed = 0

    async def run(self) -> list[Path]:
        """Transcribe all recordings; return those that failed."""
        started_s = time.perf_counter()
        numbers = iter(range(len(self._work)))

        async def transcribe_some() -> None:
            while self._ended_by is None and (number := next(numbers, None)) is not None:
                self._num_begun += 1
                await self._transcribe(number)

        if not self._bar.disable:
            paths = [recording.path for recording, _ in self._work]
            self._bar.durations = await asyncio.to_thread(lambda: [*map(stated_duration_s, paths)])
            self._bar.draw()
        try:
            with self._bar:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._wanted.batch_size, len(self._work))):
                        group.create_task(transcribe_some())
        finally:  # after Ctrl-C, an earlier text may be missing
            for number in sorted(self._texts):
                self._print(number)
        if not self._wanted.quiet:
            self._sum_up(time.perf_counter() - started_s)
        return self._failed

    def _sum_up(self, elapsed_s: float) -> None:
        if num_left := len(self._work) - self._num_begun:
            to_folder = self._wanted.output_dir is not None
            remedy = "; the same command with --skip-existing transcribes the rest" if to_folder else ""
            self._errors.print(f"{num_left} more not begun{remedy}.", highlight=False, soft_wrap=True)
        if self._num_done and not self._shows_text:
            recordings = "1 recording" if self._num_done == 1 else f"{self._num_done} recordings"
            self._errors.print(
                f"{recordings}, {clock(self._bar.finished_s)} in {clock(elapsed_s)}: "
                f"{speed(self._bar.finished_s, elapsed_s):.1f} times as fast as speech",
                highlight=False,
            )

    async def _transcribe(self, number: int) -> None:
        """Transcribe a recording and write its transcript, or report its error."""
        recording, outputs = self._work[number]
        text = ""
        try:
            transcript, no_speakers = await self._transcript(number, recording)
            warn(transcript, self._errors)
            for form in self._job.formats:
                text = self._job.rendered(transcript, recording, form)
                if outputs:
                    write(outputs[form], text)
            if self._shows_text and not outputs:
                self._print_unshown(transcript, text)
            if self._shows_text and not self._wanted.quiet:
                print_table(self._errors, transcript_table(transcript))
            if no_speakers is not None:
                raise no_speakers
            self._bar.finish(number, transcript.duration_s)
            self._num_done += 1
            self._failover.progressed()
        except SpecWhisperError as error:
            if str(error) != str(self._ended_by):  # several may fail with it: one message is enough
                report(error, self._errors, recording.path if self._has_others else None)
            if _is_of_server(error):
                self._ended_by = error
            self._failed.append(recording.path)
            self._bar.finish(number)
        self._one_ended.set()
        self._one_ended = asyncio.Event()
        if not (outputs or self._shows_text):
            self._texts[number] = text
            self._print_complete()

    async def _transcript(
        self, number: int, recording: RecordingFile
    ) -> tuple[Transcription, DiarizationFailed | None]:
        """Transcribe a recording; if the server is full, wait until another one of the command has ended.

        If the server was reached before and is lost, wait until it is back.
        """
        if self._shows_text:
            if self._has_others:
                self._name(number)
            with choose_display(self._job, self._console, self._errors) as display:
                is_live = isinstance(display, LiveDisplay)
                return await transcribe_one(
                    self._client, recording, self._job, display.show, interim_results=is_live
                )
        while True:
            self._num_running += 1
            try:
                show = partial(self._bar.follow, number)
                return await transcribe_one(self._client, recording, self._job, show)
            except ServerFull:
                if self._num_running == 1:
                    raise  # other clients hold all its sessions
                one_ended = self._one_ended
            except TargetUnavailable as error:
                if not (self._num_done and _is_of_server(error)):
                    raise
                await self._failover.wait(error)
                continue
            finally:
                self._num_running -= 1
            await one_ended.wait()

    def _print_unshown(self, transcript: Transcription, text: str) -> None:
        """Print a text that was not shown while it was written."""
        if self._job.formats[0] is not OutputFormat.TXT:
            self._console.file.write(text)
        elif self._wanted.diarizer is not None:
            show_speakers(transcript, self._console)

    def _print_complete(self) -> None:
        for number in count(self._num_printed):
            if number not in self._texts:
                return
            with self._bar.hidden():
                self._print(number)
            self._num_printed += 1

    def _print(self, number: int) -> None:
        """Print a text to standard output, and its recording's name to standard error."""
        if text := self._texts.pop(number):
            self._name(number)
        self._console.file.write(text)
        self._console.file.flush()

    def _name(self, number: int) -> None:
        if not self._wanted.quiet:
            self._errors.print(Text(escaped(str(self._work[number][0].path)), "bold"), soft_wrap=True)
