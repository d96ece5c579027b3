"""Runs of the command line, in this process and as a process of its own."""

import asyncio
import io
import sys

from rich.console import Console

from specwhisper_client.cli.batch import transcribe_files
from specwhisper_client.cli.jobs import Job


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

    async def run(self, files, address, **job) -> bool:
        return await transcribe_files(files, Job(address, **job), self.console, self.errors)


async def run_cli(*arguments) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "specwhisper_client.cli.main", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
