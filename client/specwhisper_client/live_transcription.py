"""Live audio sent through a stream: updates, and the result at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from statistics import fmean

from specwhisper.audio.canonical import Samples
from specwhisper.errors import SpecWhisperError
from specwhisper.tasks import NextItem, running
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update


class LiveTranscription:
    """Live audio being transcribed: iterate over it once, then read ``result``.

    Parameters
    ----------
    stream : an open stream.
    audio : pieces of audio as ``stream`` takes them, at any pace.
    keeps_segments : whether the result has segments; ``False`` saves memory over hours of speech.
    """

    def __init__(
        self, stream: StreamingClient, audio: AsyncIterator[bytes | Samples], *, keeps_segments: bool = True
    ) -> None:
        self._stream = stream
        self._audio = audio
        self._keeps_segments = keeps_segments
        self._utterances = Utterances()
        self._segments: list[Segment] = []
        self._elapsed_s = 0.0
        self._is_stopped = asyncio.Event()

    @property
    def result(self) -> Transcription:
        """The transcription with a segment per utterance, after the last update."""
        stream = self._stream
        if stream.model is None:
            raise SpecWhisperError("The stream has not ended: take its updates first.")
        return stream.transcription(
            self._segments, duration_s=stream.received_s, options=stream.options, elapsed_s=self._elapsed_s
        )

    def stop(self) -> None:
        """Stop reading audio; the text so far becomes final."""
        self._is_stopped.set()

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Send the audio and yield updates; an error of the audio is raised."""
        started_s = time.perf_counter()
        sending = asyncio.create_task(self._send())
        try:
            async with aclosing(aiter(self._stream)) as updates:
                async for update in updates:
                    self._keep(self._utterances.add(update.segments))
                    yield update
                    if sending.done():
                        await sending
            await sending
        except SpecWhisperError:
            if sending.done():
                await sending  # raises the error of reading the audio
            raise
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        self._keep(self._utterances.finish())
        self._elapsed_s = time.perf_counter() - started_s

    def _keep(self, segments: list[Segment]) -> None:
        if self._keeps_segments:
            self._segments += segments

    async def _send(self) -> None:
        try:
            async with aclosing(self._until_stopped()) as pieces:
                async for piece in pieces:
                    await self._stream.send(piece)
        except Exception:
            # Otherwise the stream would wait forever; this task keeps the error.
            await self._stream.finish()
            raise
        await self._stream.finish()  # not after a cancellation: no reader is left

    async def _until_stopped(self) -> AsyncGenerator[bytes | Samples]:
        async with running(self._is_stopped.wait()) as (stopped,):
            while not self._is_stopped.is_set():
                async with NextItem(self._audio) as pending:
                    piece = pending.item if await pending.wait(stopped) else None
                if piece is None:
                    return
                yield piece


async def whole_utterances(updates: AsyncIterable[Update]) -> AsyncGenerator[Update]:
    """Yield updates in which each segment is a whole utterance.

    The final text of an open one is the settled text. If the updates end with an error, it is yielded before.
    """
    utterances = Utterances()
    try:
        async with aclosing(aiter(updates)) as received:  # type: ignore[type-var]
            async for update in received:
                segments = utterances.add(update.segments)
                final = "".join(piece.text for piece in utterances.pieces)
                verified = final + update.verified_text
                yield replace(update, segments=tuple(segments), verified_text=verified, settled_text=final)
    except SpecWhisperError:
        if segments := utterances.finish():
            yield Update(tuple(segments))
        raise
    if segments := utterances.finish():
        yield Update(tuple(segments))


async def with_speakers(updates: LiveTranscription, speakers: UtteranceSpeakers) -> AsyncGenerator[Update]:
    """Yield updates in which each segment is a whole utterance, with its speakers.

    ``speakers`` is the stream's, which has its audio.
    """
    async with aclosing(whole_utterances(updates)) as whole:
        async for update in whole:
            yield replace(update, segments=tuple([await speakers.named(each) for each in update.segments]))


class Utterances:
    """Joins final pieces into utterances; an utterance is complete with its last piece.

    Attributes
    ----------
    pieces : those of the open utterance.
    """

    def __init__(self) -> None:
        self.pieces: list[Segment] = []

    def add(self, pieces: Iterable[Segment]) -> list[Segment]:
        """Add final pieces in order; return the utterances that they complete."""
        complete = []
        for piece in pieces:
            if self.pieces and piece.utterance != self.pieces[0].utterance:
                complete += self.finish()  # its end was lost with a connection
            self.pieces.append(piece)
            if piece.is_utterance_end:
                complete += self.finish()
        return complete

    def finish(self) -> list[Segment]:
        """Return the open utterance if it has text; no piece follows."""
        pieces, self.pieces = self.pieces, []
        return [joined(pieces)] if any(piece.text.strip() for piece in pieces) else []


def joined(pieces: list[Segment]) -> Segment:
    """Join an utterance's pieces into one segment; the log-probability and the ratio are the last piece's."""
    spoken = [piece for piece in pieces if piece.text.strip()]
    probs = [piece.no_speech_prob for piece in spoken if piece.no_speech_prob is not None]
    return replace(
        spoken[0],
        end_s=spoken[-1].end_s,
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        words=tuple(word for piece in spoken for word in piece.words),
        confidence=fmean(piece.confidence for piece in spoken),
        avg_logprob=spoken[-1].avg_logprob,
        compression_ratio=spoken[-1].compression_ratio,
        temperature=max(piece.temperature for piece in spoken),
        no_speech_prob=fmean(probs) if probs else None,
        is_utterance_end=True,
    )
