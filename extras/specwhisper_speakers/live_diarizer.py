"""Find the voices in pieces of live audio, with models of sherpa-onnx."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import DiarizationFailed
from specwhisper.tasks import retrieve_error
from specwhisper_speakers.diarizer import failure, worker_command
from specwhisper_speakers.voices import DEFAULT_THRESHOLD

MAX_LINE_BYTES = 1024 * 1024  # longest answer: an embedding has a few hundred numbers


class VoicesOfPiece(NamedTuple):
    """The turns of a piece (start and end in seconds, speaker's number), and the voices' embeddings.

    A voice of which there was too little has no embedding.
    """

    turns: tuple[tuple[float, float, int], ...]
    embeddings: Mapping[int, NDArray[np.float64]]


class LiveDiarizer:
    """Finds the voices in pieces of audio, in one process for all live sessions.

    The process starts with the first piece, and again after it has ended. One piece may take ``timeout_s``;
    then the process is killed. The rest is as in :class:`Diarizer`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        num_threads: int = 1,
        timeout_s: float = 60.0,
    ) -> None:
        self.threshold = threshold
        self._command = worker_command(
            Path(folder), threshold=threshold, num_threads=num_threads, is_live=True
        )
        self._timeout_s = timeout_s
        self._process: Process | None = None
        self._errors: IO[bytes] = BytesIO()  # what the process writes there
        self._is_free = asyncio.Lock()

    async def voices_in(self, pcm: bytes) -> VoicesOfPiece:
        """Return the turns and voices of a piece of canonical PCM.

        Raises
        ------
        DiarizationFailed : if the process ends, or takes too long.
        """
        exchange = asyncio.create_task(self._exchange(pcm))
        exchange.add_done_callback(retrieve_error)
        return await asyncio.shield(exchange)  # a cancelled caller leaves no answer unread

    async def close(self) -> None:
        async with self._is_free:
            await self._kill()

    async def _exchange(self, pcm: bytes) -> VoicesOfPiece:
        async with self._is_free:
            process = self._process = self._process or await self._start()
            line = b""
            try:
                async with asyncio.timeout(self._timeout_s):
                    with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, with a status
                        stdin = cast(asyncio.StreamWriter, process.stdin)
                        stdin.write(len(pcm).to_bytes(4, "little") + pcm)
                        await stdin.drain()
                        line = await cast(asyncio.StreamReader, process.stdout).readline()
            except TimeoutError:
                await self._kill()
                raise DiarizationFailed(
                    f"The process that finds speakers has not answered within {self._timeout_s:g} s."
                ) from None
            if not line.endswith(b"\n"):
                status = await process.wait()
                self._errors.seek(0)
                reason = self._errors.read()
                await self._kill()
                raise failure(status, reason)
            answer = json.loads(line)
            turns = tuple((start_s, end_s, number) for start_s, end_s, number in answer["turns"])
            voices = {int(number): np.array(voice) for number, voice in answer["voices"].items()}
            return VoicesOfPiece(turns, voices)

    async def _start(self) -> Process:
        self._errors = TemporaryFile()  # closed in _kill; a pipe would have to be read
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=self._errors, limit=MAX_LINE_BYTES
        )

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._errors.close()
