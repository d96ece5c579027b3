"""Sources of live audio: a microphone, or a recording instead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.damage import Warn, ignore
from specwhisper.audio.decode import decode_file
from specwhisper.audio.source import AudioSource
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.extras import needs_extra
from specwhisper.selection import ALL_AUDIO, Selection
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.updates import PathLike

logger = logging.getLogger(__name__)

PIECE_SAMPLES = SAMPLE_RATE // 10
MAX_UNREAD_PIECES = 600  # a minute


@asynccontextmanager
async def microphone(device: str | None = None) -> AsyncIterator[AsyncGenerator[bytes]]:
    """Open a microphone; yield its canonical PCM until the context ends.

    Parameters
    ----------
    device : number or part of the name, as sounddevice lists them; by default the system's own.
    """
    sounddevice = _sounddevice()
    loop = asyncio.get_running_loop()
    captured: asyncio.Queue[bytes | None] = asyncio.Queue()
    is_late = False

    def put(pcm: bytes) -> None:
        nonlocal is_late
        # Drop pieces until half of the unread ones are sent: otherwise each piece would cause a warning.
        limit = MAX_UNREAD_PIECES // 2 if is_late else MAX_UNREAD_PIECES
        was_late, is_late = is_late, captured.qsize() >= limit
        if not is_late:
            captured.put_nowait(pcm)
        elif not was_late:
            logger.warning("The server lags the microphone by more than a minute: new audio is dropped.")

    def take(data: Any, _frames: int, _time: Any, _status: Any) -> None:
        loop.call_soon_threadsafe(put, bytes(data))

    def end() -> None:
        loop.call_soon_threadsafe(captured.put_nowait, None)

    async def pieces() -> AsyncGenerator[bytes]:
        while (pcm := await captured.get()) is not None:
            yield pcm
        logger.warning("The microphone has stopped: it may have been unplugged.")

    with ExitStack() as stack:
        try:
            stack.enter_context(
                sounddevice.RawInputStream(
                    samplerate=SAMPLE_RATE,
                    channels=1,
                    dtype="int16",
                    blocksize=PIECE_SAMPLES,
                    device=int(device) if device is not None and device.isdigit() else device,
                    callback=take,
                    finished_callback=end,
                )
            )
        except (sounddevice.PortAudioError, ValueError) as error:
            raise InvalidRequest(
                f"The microphone cannot be opened ({error}): choose another one with --device, or try "
                "--simulate FILE."
            ) from error
        yield pieces()


async def file(
    path: PathLike, *, is_paced: bool, warn: Warn = ignore, selection: Selection = ALL_AUDIO
) -> AsyncGenerator[bytes]:
    """Yield a recording as canonical PCM, in real time or as fast as it is read."""
    source = await AudioSource.open(partial(decode_file, path, None, warn, selection))
    started_s, num_samples = monotonic(), 0
    async for block in source.pieces():
        for start in range(0, len(block), PIECE_SAMPLES * BYTES_PER_SAMPLE):
            pcm = block[start : start + PIECE_SAMPLES * BYTES_PER_SAMPLE]
            num_samples += len(pcm) // BYTES_PER_SAMPLE
            if is_paced:  # a microphone delivers a piece after its last sample
                await asyncio.sleep(started_s + num_samples / SAMPLE_RATE - monotonic())
            yield pcm


def _sounddevice() -> Any:
    try:
        with needs_extra("A microphone", "microphone", otherwise="or try --simulate FILE"):
            import sounddevice
    except OSError as error:
        raise UnsupportedOption(
            f"A microphone needs PortAudio ({error}): apt-get install libportaudio2, or try --simulate FILE."
        ) from error
    return sounddevice
