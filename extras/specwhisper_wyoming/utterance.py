"""One utterance: audio in, events of its text out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import numpy as np
from wyoming.asr import Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.event import Event

from specwhisper.errors import InvalidAudio
from specwhisper.options import DecodingOptions
from specwhisper_client.servers import Servers
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Deltas

WIDTHS = (1, 2, 3, 4)
Send = Callable[[Event], Awaitable[None]]


class PcmFormat(NamedTuple):
    """The format of raw samples: rate in Hz, bytes of a sample, channels."""

    rate: int
    width: int
    channels: int


def read_format(data: dict[str, Any]) -> PcmFormat:
    values = []
    for name in PcmFormat._fields:
        value = data.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidAudio(f"The '{name}' of an audio-chunk is missing, or is not a whole number.")
        values.append(value)
    found = PcmFormat(*values)
    if found.width not in WIDTHS:
        raise InvalidAudio(f"Samples of {found.width} bytes are not supported: 1 to 4 are.")
    return found


class To16Bit:
    """Converts samples of 1 to 4 bytes to s16le; pieces may break off anywhere.

    Samples of one byte are unsigned, as in WAV files. The upper 16 bits of wider ones are kept.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._partial = b""

    def push(self, data: bytes) -> bytes:
        data = self._partial + data
        end = len(data) - len(data) % self._width
        self._partial = data[end:]
        samples = np.frombuffer(data, np.uint8, count=end).reshape(-1, self._width)
        if self._width == 1:
            return ((samples.astype(np.int16) - 128) << 8).astype("<i2").tobytes()
        return samples[:, -2:].tobytes()


class WyomingUtterance:
    """A session at a draft server, from the first audio to the transcript."""

    answering: asyncio.Task[None]  # runs :meth:`transcribe`

    def __init__(self, servers: Servers, options: DecodingOptions, pcm_format: PcmFormat) -> None:
        self.pcm_format = pcm_format
        self.is_finished = False  # its audio has ended
        self._to_16_bit = To16Bit(pcm_format.width)
        # The client ends an utterance, by its own voice activity detection.
        self._stream = StreamingClient(
            options=options,
            endpointing=None,
            sample_rate=pcm_format.rate,
            num_channels=pcm_format.channels,
            interim_results=False,
            servers=servers,
        )

    @property
    def received_s(self) -> float:
        return self._stream.received_s

    @property
    def language(self) -> str | None:
        """The code of the spoken language, or else of the requested one."""
        return self._stream.language or self._stream.options.language

    async def put(self, samples: bytes) -> None:
        """Send audio; it waits while the draft server does not keep up."""
        await self._stream.send(self._to_16_bit.push(samples))

    async def finish(self) -> None:
        self.is_finished = True
        await self._stream.finish()

    async def transcribe(self, send: Send) -> None:
        """Send the events of the text: chunks as it becomes final, then the whole."""
        text = Deltas()
        async with self._stream, aclosing(aiter(self._stream)) as updates:
            await send(TranscriptStart(language=self.language).event())
            async for update in updates:
                if chunk := text.add(update.segments)[1]:
                    await send(TranscriptChunk(chunk).event())
        await send_transcript(send, text.sent, self.language)


async def send_transcript(send: Send, text: str, language: str | None) -> None:
    """Send the whole text, which is all that clients without streaming read, and the end."""
    await send(Transcript(text, language=language).event())
    await send(TranscriptStop().event())
