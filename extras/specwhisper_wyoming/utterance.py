"""One utterance: audio in, events of its text out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from wyoming.asr import Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.event import Event

from specwhisper.options import DecodingOptions
from specwhisper_client.servers import Servers
from specwhisper_client.streaming import StreamingClient
from specwhisper_wyoming.audio import PcmFormat, To16Bit
from specwhisper_wyoming.transcript import TranscriptText

Send = Callable[[Event], Awaitable[None]]


class WyomingUtterance:
    """A session at a draft server, from the first audio to the transcript.

    Parameters
    ----------
    pcm_format : of its audio.

    Attributes
    ----------
    is_finished : whether its audio has ended.

    Raises
    ------
    InvalidAudio : for a rate or a number of channels that is not supported.
    """

    def __init__(self, servers: Servers, options: DecodingOptions, pcm_format: PcmFormat) -> None:
        self.pcm_format = pcm_format
        self.is_finished = False
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
        """Seconds of audio that the draft server has received."""
        return self._stream.received_s

    @property
    def language(self) -> str | None:
        """Code of the language: of the speech, or else of the request."""
        return self._stream.language or self._stream.options.language

    async def put(self, samples: bytes) -> None:
        """Send audio; it waits while the draft server does not keep up."""
        await self._stream.send(self._to_16_bit.push(samples))

    async def finish(self) -> None:
        """End the audio."""
        self.is_finished = True
        await self._stream.finish()

    async def transcribe(self, send: Send) -> None:
        """Send the events of the text: chunks as it becomes final, then the whole."""
        text = TranscriptText()
        async with self._stream, aclosing(aiter(self._stream)) as updates:
            await send(TranscriptStart(language=self.language).event())
            async for update in updates:
                if chunk := text.add("".join(segment.text for segment in update.segments)):
                    await send(TranscriptChunk(chunk).event())
        await send_transcript(send, text.text, self.language)


async def send_transcript(send: Send, text: str, language: str | None) -> None:
    """Send the whole text and the end of the stream.

    Clients without streaming read only the whole text.
    """
    await send(Transcript(text, language=language).event())
    await send(TranscriptStop().event())
