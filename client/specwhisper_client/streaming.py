"""Live transcription: send audio as it is spoken, and receive text at the same time.

async with StreamingClient("127.0.0.1:50051") as stream:
    ...                                   # in one task: await stream.send(pcm), then await stream.finish()
    async for update in stream:           # in another
        print(*(segment.text for segment in update.segments), "|", update.text)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from specwhisper.audio.canonical import CanonicalStream, Samples
from specwhisper.audio.channels import Mixer
from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import RETRY_ELSEWHERE, IdleClient, InvalidRequest, ServerFull, SpecWhisperError
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions, options_from
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.transcription.hints import HintFeed, hint_at
from specwhisper.transcription.segments import Borders
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper.types import LIVE_MODES, SAMPLE_RATE, EndUtterance, Mode
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.calls import Calls, Piece
from specwhisper_client.codec import config_to_proto, resume_point_from_proto, resume_point_to_proto
from specwhisper_client.servers import DEFAULT_SERVER, Servers
from specwhisper_client.updates import ResumePoint, Update

FIRST_CONNECT_S = 5.0  # time limit until a server has answered once: the address may be wrong


class StreamingClient(Calls):
    """One live transcription on a draft server, as a context manager.

    It keeps the audio whose text isn't final. If the connection is lost, it opens another one and continues
    after the last final word; no word is lost or repeated.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server, or several with commas between. The stream uses one of their
        addresses, and resumes at another one if it is lost.
    options, named : decoding options as an object, by name, or both: a name then replaces the object's value.
    live : how live audio is decoded.
    resume_point : where an earlier stream stopped; this one continues it with the audio from there on.
    endpointing : when utterances begin and end; ``None`` for a single utterance.
    mode : ``Mode.FULL`` with the draft, or ``Mode.TARGET_ONLY``; by default the server's own.
    sample_rate, num_channels : format of the audio that is sent.
    added_latency_ms : latency injected into the round trip between draft and target server, for experiments;
        refused unless the server has ``--allow-latency-injection``.
    interim_results : whether updates have text that may still change.
    continue_unverified : whether the session continues draft-only while its target cannot be reached.
    with_statistics : whether every update has statistics; the last one always has.
    reconnect_s : seconds for which to reconnect after a loss.
    credentials : encryption, and the token that identifies the caller.
    servers : shared connections; by default the stream has its own, to ``server``.
    speakers : receives the audio, so that it can name the speakers of utterances.

    Attributes
    ----------
    model, language, language_name, language_probs, statistics, received_s : those of :class:`Calls`.
    options : decoding options.
    resume_point : where another stream would continue; ``None`` at the beginning.
    num_reconnects : how often the connection was lost.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        options: DecodingOptions | None = None,
        *,
        live: LiveOptions | None = None,
        resume_point: ResumePoint | None = None,
        endpointing: EndpointingOptions | None = EndpointingOptions(),  # noqa: B008 (it is frozen)
        mode: Mode | None = None,
        sample_rate: int = SAMPLE_RATE,
        num_channels: int = 1,
        added_latency_ms: int = 0,
        interim_results: bool = True,
        continue_unverified: bool = False,
        with_statistics: bool = False,
        reconnect_s: float = 30.0,
        credentials: Credentials = OPEN,
        servers: Servers | None = None,
        speakers: UtteranceSpeakers | None = None,
        **named: Any,
    ) -> None:
        self.options = replace(options_from(options or {}, named), live=live or LiveOptions())
        self._mode = _checked(mode)
        self._settings: dict[str, Any] = {
            "interim_results": interim_results,
            "continue_unverified": continue_unverified,
            "added_latency_ms": added_latency_ms,
            "with_statistics": with_statistics,
            "endpointing": codec.endpointing_to_proto(endpointing),
        }
        self._reconnect_s = reconnect_s
        self._owns_servers = servers is None
        self.resume_point = resume_point
        super().__init__(servers or Servers(server, credentials), self._start_sample / SAMPLE_RATE)
        self._canonical = CanonicalStream(sample_rate, num_channels, Mixer(self.options.channel))
        self._audio = KeptAudio(self._start_sample)
        self._audio.forget_ends(resume_point.num_ends if resume_point is not None else 0)
        self._speakers = speakers
        self._hints = HintFeed()
        self._is_read = False
        self._is_changed = False  # whether a call was cancelled so that one with other settings continues
        self._borders = Borders(self.received_s)
        self.num_reconnects = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._audio.finish()
        if self._call is not None:
            self._call.cancel()
        if self._owns_servers:
            await self._servers.close()

    async def send(self, samples: bytes | Samples) -> None:
        """Send samples: s16le bytes, or float32 or int16 arrays, channels interleaved.

        It waits while the server doesn't keep up or the updates aren't read, so send in one task and read in
        another. Once the stream has ended, samples are dropped; the reader gets the error.
        """
        await self._put(self._canonical.push(samples))

    def hint(self, text: str, start_s: float) -> None:
        """Send a text that the audio may say, starting at a given time.

        The target verifies it, so it saves time and changes no text. It replaces all earlier hints for the
        audio from ``start_s`` on, so another recogniser's text may be sent again as it grows. The hint of the
        options, which has no times, stays valid. The text is sent with the next samples.

        Parameters
        ----------
        start_s : when its first word begins, roughly, in seconds from the beginning of the stream.

        Raises
        ------
        InvalidRequest : for more than 4,000 bytes, or a time before the beginning.
        """
        self._hints.put(hint_at(start_s, text))

    def end_utterance(self) -> None:
        """End the open utterance with the audio sent so far.

        Its text becomes final at once. Audio that follows begins another utterance.
        """
        self._audio.end_utterance()

    @property
    def _start_sample(self) -> int:
        """First sample of the audio that another call needs."""
        return self.resume_point.start_sample if self.resume_point is not None else 0

    def change(self, *, mode: Mode | None = None, added_latency_ms: int = 0) -> None:
        """Continue with other settings after the last final word, in another call.

        Settings that are not named are the server's own.
        """
        self._mode, self._settings["added_latency_ms"] = _checked(mode), added_latency_ms
        if self._call is not None and self._call.cancel():  # false if it had already ended
            self._is_changed = True

    async def finish(self) -> None:
        """End the audio; the text so far becomes final."""
        try:
            await self._put(self._canonical.finish())
        finally:  # even if the last sample is incomplete: otherwise the stream would wait for more
            self._audio.finish()

    async def _put(self, pcm: bytes) -> None:
        if self._speakers is not None:
            self._speakers.append(pcm)
        await self._audio.put(pcm)

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Yield updates until all text is final."""
        if self._is_read:
            raise InvalidRequest("A stream is read once: open another one.")
        self._is_read = True
        try:
            while True:
                self._is_changed = False
                try:
                    async with aclosing(self._run_call(self._request)) as responses:
                        async for response, update in responses:
                            if response.HasField("resume_point"):
                                self.resume_point = resume_point_from_proto(response.resume_point)
                                self._audio.forget_before(self._start_sample)
                                self._audio.forget_ends(self.resume_point.num_ends)
                            self._attempts.progressed()
                            yield replace(update, segments=self._borders(update.segments))
                except IdleClient:  # no audio came, so the server has freed its slot for another session
                    if not await self._has_more_audio():
                        return
                except RETRY_ELSEWHERE as error:
                    await self._reconnect(error)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if not self._is_changed or (task is not None and task.cancelling()):
                        raise
                else:
                    if not self._is_changed:
                        return
        finally:
            self._audio.finish()  # audio from here on is dropped

    async def _with_hints(self, audio: AsyncGenerator[bytes | EndUtterance]) -> AsyncGenerator[Piece]:
        """Yield audio, and before each piece the hints that arrived since the one before."""
        self._hints.restart(self._start_sample)
        async with aclosing(audio):
            async for piece in audio:
                for hint in self._hints.take():
                    yield hint
                yield piece

    def _request(self) -> tuple[pb.StreamingRecognitionConfig, AsyncGenerator[Piece]]:
        """Return what a call sends, from the last resume point on."""
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(self.options.for_pcm(), self._mode, None, is_container=False),
            with_resume_points=True,
            **self._settings,
        )
        if self.resume_point is not None:
            config.resume_point.CopyFrom(resume_point_to_proto(self.resume_point))
        return config, self._with_hints(self._audio.pieces(self._start_sample))

    async def _has_more_audio(self) -> bool:
        """Wait until more audio has come or it has ended; return whether text is missing."""
        received_to = round(self.received_s * SAMPLE_RATE)
        return not self._is_complete or await self._audio.continues_after(received_to)

    async def _reconnect(self, error: SpecWhisperError) -> None:
        """Prepare another call; raise the error if the time is over."""
        is_first = not self._attempts.is_retrying
        if self.model is not None:
            timeout_s = self._reconnect_s
        else:  # a full server that had taken the stream may still count the lost call; this one had not
            timeout_s = 0.0 if isinstance(error, ServerFull) else min(FIRST_CONNECT_S, self._reconnect_s)
        await self._retry(error, timeout_s)
        self.num_reconnects += is_first


def _checked(mode: Mode | None) -> Mode | None:
    if mode is not None and mode not in LIVE_MODES:
        raise InvalidRequest(f"Live audio has no mode {mode}: choose {' or '.join(LIVE_MODES)}.")
    return mode
