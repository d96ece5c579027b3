"""Runs of the command line, in this process and as a process of its own."""

import asyncio
import io
import signal
import sys

from rich.console import Console
from typer.testing import CliRunner

from specwhisper.options import DecodingOptions
from specwhisper_client.cli.batch import transcribe_files
from specwhisper_client.cli.jobs import Job
from specwhisper_client.cli.main import app
from specwhisper_client.cli.recordings import OutputFormat
from specwhisper_client.cli.transcribe_command import TranscribeOptions

DEFAULTS = DecodingOptions()
WAIT_S = 120.0  # for the end of a command


class Streams:
    """Standard output and standard error of a run, each a terminal or not."""

    def __init__(self, is_terminal: bool = False) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.console = Console(file=self._out, force_terminal=is_terminal, width=100, color_system="standard")
        self.errors = Console(file=self._err, width=100)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()

    async def run(self, files, address, **how) -> bool:
        return await transcribe_files(files, job(address, **how), self.console, self.errors)


def job(address, *, options=DEFAULTS, formats=(OutputFormat.TXT,), **wanted) -> Job:
    return Job(TranscribeOptions(files=(), server=address, **wanted), options, formats)


async def start_cli(*arguments) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "faulthandler", "-m", "specwhisper", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end_of_cli(process) -> tuple[int, str, str]:
    """Wait for the end; where it does not come, fail with what each thread of the process does."""
    output = asyncio.create_task(process.communicate())
    done, _ = await asyncio.wait([output], timeout=WAIT_S)
    if not done:
        process.send_signal(signal.SIGABRT)
    out, err = await output
    assert done, f"The process did not end:\n{err.decode()}"
    return process.returncode, out.decode(), err.decode()


async def run_cli(*arguments) -> tuple[int, str, str]:
    """Run a command in a thread, because the servers run in this event loop."""
    done = await asyncio.to_thread(CliRunner().invoke, app, [*map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr
