"""Transcribe the recordings of a command, several at a time, with progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specwhisper.audio.decode import no_such_file
from specwhisper.audio.stated import stated_duration_s
from specwhisper.errors import (
    DiarizationFailed,
    InvalidAudio,
    InvalidRequest,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
    Unauthenticated,
)
from specwhisper.printable import escaped
from specwhisper.rpc.failover import Failover
from specwhisper.transcription.transcription import Transcription
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.display import BatchBar, clock, speed
from specwhisper_client.cli.jobs import Job, report, transcribe_one, transcribe_with_display, warn
from specwhisper_client.cli.output import OutputFormat, prepare_outputs, write
from specwhisper_client.cli.recordings import RecordingFile, find_recordings
from specwhisper_client.file_transcription import RESUME_TIMEOUT_S
from specwhisper_client.updates import Update

Outputs = Mapping[OutputFormat, Path]


async def transcribe_files(arguments: Sequence[Path], job: Job, console: Console, errors: Console) -> bool:
    """Transcribe all recordings that arguments name; return whether none failed.

    Arguments that name no recording are reported first, all at once. If a recording fails, its error is
    reported in order and the others continue. If the server fails, none is begun: it would fail too.
    """
    recordings, without = find_recordings(arguments)
    for error in _errors_about(without):
        report(error, errors)
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
        if job.hints is not None and work and not job.wanted.quiet:
            num_hints = sum(job.hint_of(recording) is not None for recording, _ in work)
            errors.print(f"{num_hints} of {len(work)} recordings have a hint.", highlight=False)
        async with TranscriptionClient(job.wanted.server, job.credentials) as client:
            if job.wanted.batch_size == 1 and (num_all == 1 or job.wanted.output_dir is None):
                failed += await _one_by_one(client, work, job, console, errors, has_others=num_all > 1)
            else:
                failed += await _Batch(client, work, job, console, errors).run()
    except SpecWhisperError as error:
        report(error, errors)
        return False
    if failed and num_all > 1:
        names = escaped(", ".join(map(str, failed)))
        errors.print(Text(f"{len(failed)} of {num_all} files failed: {names}", "red"), soft_wrap=True)
    return not failed


def _is_of_server(error: SpecWhisperError) -> bool:
    return type(error) in (TargetUnavailable, Unauthenticated)  # not OutOfMemory: others may be shorter


def _report_not_begun(num_recordings: int, job: Job, errors: Console) -> None:
    if num_recordings and not job.wanted.quiet:
        remedy = (
            ""
            if job.wanted.output_dir is None
            else "; the same command with --skip-existing transcribes the rest"
        )
        errors.print(f"{num_recordings} more not begun{remedy}.", highlight=False, soft_wrap=True)


def _errors_about(arguments: Sequence[Path]) -> list[InvalidAudio]:
    errors = [InvalidAudio(f"The folder '{each}' has no recordings.") for each in arguments if each.is_dir()]
    missing = [each for each in arguments if not each.is_dir()]
    if len(missing) == 1:
        errors.append(no_such_file(missing[0]))
    elif missing:
        names = ", ".join(f"'{each}'" for each in missing)
        errors.append(InvalidAudio(f"{len(missing)} audio files do not exist: {names}."))
    return errors


async def _one_by_one(
    client: TranscriptionClient,
    work: Sequence[tuple[RecordingFile, Outputs]],
    job: Job,
    console: Console,
    errors: Console,
    *,
    has_others: bool,
) -> list[Path]:
    """Transcribe one after the other while showing the text; return those that failed."""
    failed = []
    for number, (recording, outputs) in enumerate(work, start=1):
        if has_others and not job.wanted.quiet:
            errors.print(Text(escaped(str(recording.path)), "bold"))
        try:
            await transcribe_with_display(client, recording, outputs, job, console, errors)
        except SpecWhisperError as error:
            report(error, errors, recording.path if has_others else None)
            failed.append(recording.path)
            if _is_of_server(error):
                _report_not_begun(len(work) - number, job, errors)
                break
    return failed


class _Batch:
    """Transcribes recordings, ``--batch-size`` at a time.

    With an output folder, each transcript is written as soon as it is complete. Without one, transcripts are
    printed in the order of the recordings.

    If a server that has transcribed a recording is lost, the others wait for it for :data:`RESUME_TIMEOUT_S`.
    If it stays down, no other recording is begun.
    """

    def __init__(
        self,
        client: TranscriptionClient,
        work: Sequence[tuple[RecordingFile, Outputs]],
        job: Job,
        console: Console,
        errors: Console,
    ) -> None:
        self._client = client
        self._work = work
        self._job = job
        self._console = console
        self._errors = errors
        self._bar = BatchBar(errors, is_shown=errors.is_terminal and not job.wanted.quiet)
        self._failed: list[Path] = []
        self._num_begun = self._num_done = 0
        self._failover = Failover(RESUME_TIMEOUT_S)
        self._ended_by: SpecWhisperError | None = None
        self._num_running = 0
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

        if self._bar.is_shown:
            self._bar.begin(await asyncio.to_thread(_durations, self._work))
        try:
            with self._bar:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._job.wanted.batch_size, len(self._work))):
                        group.create_task(transcribe_some())
        finally:  # after Ctrl-C, an earlier text may be missing
            for number in sorted(self._texts):
                self._print(number)
        _report_not_begun(len(self._work) - self._num_begun, self._job, self._errors)
        if self._num_done and not self._job.wanted.quiet:
            elapsed_s = time.perf_counter() - started_s
            recordings = "1 recording" if self._num_done == 1 else f"{self._num_done} recordings"
            self._errors.print(
                f"{recordings}, {clock(self._bar.finished_s)} in {clock(elapsed_s)}: "
                f"{speed(self._bar.finished_s, elapsed_s):.1f} times as fast as speech",
                highlight=False,
            )
        return self._failed

    async def _transcribe(self, number: int) -> None:
        """Transcribe a recording and write its transcript, or report its error."""
        recording, outputs = self._work[number]
        text = ""
        try:
            transcript, no_speakers = await self._transcript(number, recording)
            warn(transcript, self._errors)
            for form in self._job.formats:
                text = self._job.rendered(transcript, recording, form)
                if self._job.wanted.output_dir is not None:
                    write(outputs[form], text)
            if no_speakers is not None:
                raise no_speakers
            self._bar.finish(number, transcript.duration_s)
            self._num_done += 1
            self._failover.progressed()
        except SpecWhisperError as error:
            if str(error) != str(self._ended_by):  # several may fail with it: one message is enough
                report(error, self._errors, recording.path)
            if _is_of_server(error):
                self._ended_by = error
            self._failed.append(recording.path)
            self._bar.finish(number)
        if self._job.wanted.output_dir is None:
            self._texts[number] = text
            self._print_complete()

    async def _transcript(
        self, number: int, recording: RecordingFile
    ) -> tuple[Transcription, DiarizationFailed | None]:
        """Transcribe a recording; if the server is full, wait until another one of the command has ended.

        If the server was reached before and is lost, wait until it is back.
        """

        def show(update: Update) -> None:
            self._bar.advance(number, update)

        while True:
            must_wait = False
            self._num_running += 1
            try:
                return await transcribe_one(self._client, recording, self._job, show)
            except ServerFull:
                must_wait = self._num_running > 1
                if not must_wait:
                    raise  # other clients hold all its sessions
            except TargetUnavailable as error:
                if not (self._num_done and _is_of_server(error)):
                    raise
                await self._failover.wait(error)
                continue
            finally:
                self._num_running -= 1
                if not must_wait:
                    self._one_ended.set()
                    self._one_ended = asyncio.Event()
            await self._one_ended.wait()

    def _print_complete(self) -> None:
        for number in count(self._num_printed):
            if number not in self._texts:
                return
            with self._bar.hidden():
                self._print(number)
            self._num_printed += 1

    def _print(self, number: int) -> None:
        """Print a text to standard output, and its recording's name to standard error."""
        text = self._texts.pop(number)
        if text and not self._job.wanted.quiet:
            self._errors.print(Text(escaped(str(self._work[number][0].path)), "bold"), soft_wrap=True)
        self._console.file.write(text)
        self._console.file.flush()


def _durations(work: Sequence[tuple[RecordingFile, Outputs]]) -> list[float | None]:
    return [stated_duration_s(recording.path) for recording, _ in work]
