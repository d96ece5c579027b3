"""Where live audio comes from: a microphone, or a file that pretends to be one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import decode_file
from specwhisper.audio.source import AudioSource
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.replies import PathLike

logger = logging.getLogger(__name__)

PIECE_SAMPLES = SAMPLE_RATE // 10
MAX_UNREAD_PIECES = 600  # a minute: whoever is that far behind will not catch up


@asynccontextmanager
async def microphone(device: str | None = None) -> AsyncIterator[AsyncGenerator[bytes]]:
    """Open a microphone; what it gives is canonical PCM, until the context is left or the device has gone.

    Parameters
    ----------
    device : number or part of the name, as sounddevice lists them; by default the system's own.
    """
    sounddevice = _sounddevice()
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[bytes | None] = asyncio.Queue()
    is_behind = False

    def put(pcm: bytes) -> None:
        nonlocal is_behind
        # Half must be caught up first: else each piece that is taken would bring another warning.
        limit = MAX_UNREAD_PIECES // 2 if is_behind else MAX_UNREAD_PIECES
        was_behind, is_behind = is_behind, heard.qsize() >= limit
        if not is_behind:
            heard.put_nowait(pcm)
        elif not was_behind:
            logger.warning(
                "The server is more than a minute behind the microphone: what is said now is lost."
            )

    def take(data: Any, _frames: int, _time: Any, _status: Any) -> None:
        loop.call_soon_threadsafe(put, bytes(data))

    def end() -> None:
        loop.call_soon_threadsafe(heard.put_nowait, None)

    async def pieces() -> AsyncGenerator[bytes]:
        while (pcm := await heard.get()) is not None:
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


async def file(path: PathLike, *, is_paced: bool) -> AsyncGenerator[bytes]:
    """Give a recording as canonical PCM: in real time, or as fast as it is taken."""
    source = await AudioSource.open(partial(decode_file, path))
    started_s, num_samples = monotonic(), 0
    async for block in source.pieces():
        for start in range(0, len(block), PIECE_SAMPLES * BYTES_PER_SAMPLE):
            pcm = block[start : start + PIECE_SAMPLES * BYTES_PER_SAMPLE]
            num_samples += len(pcm) // BYTES_PER_SAMPLE
            if is_paced:  # a piece is there when its last sample has been spoken
                await asyncio.sleep(started_s + num_samples / SAMPLE_RATE - monotonic())
            yield pcm


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ModuleNotFoundError as error:
        raise UnsupportedOption(
            "A microphone needs sounddevice: pip install 'specwhisper[microphone]', or try --simulate FILE."
        ) from error
    except OSError as error:
        raise UnsupportedOption(
            f"A microphone needs PortAudio ({error}): apt-get install libportaudio2, or try --simulate FILE."
        ) from error
    return sounddevice
