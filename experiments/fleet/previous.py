"""Programs of the previous release, run from the commit that ``tests/compat/previous-release`` names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from experiments.common.bench.report import ROOT
from experiments.fleet.servers import DRAFT_PASS_MS, PASS_MS
from specwhisper.errors import InvalidRequest
from specwhisper_client.cli.server_process import following, start_server

SERVER = "experiments.common.serve_scripted"
START_TIMEOUT_S = 120.0


class PreviousRelease:
    """The previous release's code and the servers that run it: an asynchronous context manager.

    Parameters
    ----------
    folder : where the code is unpacked.
    """

    def __init__(self, folder: Path) -> None:
        self._tree = folder.resolve()
        self._environment = {"PYTHONPATH": str(self._tree)}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> PreviousRelease:
        unpacking = [ROOT / "scripts" / "previous-release", self._tree]
        unpacked = await asyncio.to_thread(subprocess.run, unpacking, stderr=subprocess.PIPE, text=True)
        if unpacked.returncode:
            raise InvalidRequest(unpacked.stderr.strip())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start_target(self) -> str:
        """Start a target server and return its address once it is ready."""
        return await self._start("target", "--pass-ms", f"{PASS_MS:g}")

    async def start_draft(self, target: str) -> str:
        """Start a draft server and return its address once it is ready."""
        return await self._start("draft", "--pass-ms", f"{DRAFT_PASS_MS:g}", "--target", target)

    async def transcribe(self, recording: Path, server: str) -> tuple[str, str]:
        """Run the command line on a recording; return its text, and its error where it failed."""
        asked = ("transcribe", str(recording), "--server", server, "--language", "en", "--quiet")
        process = await asyncio.create_subprocess_exec(
            *self._command("client.cli", *asked),  # its name before the packages had names of their own
            env=os.environ | self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        text, error = await process.communicate()
        return text.decode(), error.decode() if process.returncode else ""

    async def _start(self, kind: str, *arguments: str) -> str:
        process = start_server(self._command(SERVER, kind, *arguments), self._environment)
        running = following(process, f"{kind} of the previous release", start_timeout_s=START_TIMEOUT_S)
        return await asyncio.to_thread(self._stack.enter_context, running)

    def _command(self, module: str, *arguments: str) -> list[str]:
        """Return what runs a module in its tree: Python looks in the working directory first."""
        return ["env", "--chdir", str(self._tree), sys.executable, "-m", module, *arguments]
