"""Read clients' requests: settings, and audio as canonical PCM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from typing import Any, Generic, TypeVar

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, CanonicalStream
from specwhisper.audio.channels import Mixer
from specwhisper.audio.damage import Warn, ignore
from specwhisper.audio.decode import decode_file
from specwhisper.errors import IdleClient, InvalidRequest, MessageTooLarge, UnsupportedOption, check_between
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.hints import HintFeed
from specwhisper.types import EndUtterance, Mode
from specwhisper.wire import CLIENT_PROTOCOL_VERSION, check_protocol, codec, flac
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.draft_source import DraftSource
from specwhisper_draft_server.session import SessionRequest

DEFAULTS = DecodingOptions()
MAX_ADDED_LATENCY_MS = 2_000
MAX_PIECE_BYTES = 64 * 1024  # streamed audio is resampled in the event loop, which must stay responsive
Request = TypeVar("Request", bound=Any)


def read_request(
    config: pb.RecognitionConfig, server: DraftConfig, drafting: DraftSource | None
) -> SessionRequest:
    """Return the settings of a client's request.

    The server's own settings are used for those that it leaves out.
    """
    if config.protocol_version:  # clients in other languages may leave it out
        check_protocol(
            "The client",
            config.protocol_version,
            config.software_version,
            here="this draft server",
            own=CLIENT_PROTOCOL_VERSION,
        )
    is_open = config.mode == decoding_pb2.MODE_UNSPECIFIED
    mode = server.mode if is_open else codec.mode_from_proto(config.mode)
    if drafting is not None:
        drafting.check_mode(mode)
    elif mode.drafts:
        raise UnsupportedOption(
            f"This server runs without a draft model (--mode target-only): mode {mode} is not offered."
        )
    options = codec.recognition_config_from_proto(config)
    if options.live is not None:  # its draft sends whole texts and never waits, whatever mode is requested
        return SessionRequest(options, DraftLength(Mode.FULL if mode.drafts else mode))
    return SessionRequest(options, server.length(mode, config.gamma or None))


def read_streaming_request(
    config: pb.StreamingRecognitionConfig, server: DraftConfig, drafting: DraftSource | None
) -> SessionRequest:
    """Read the settings of a stream; see :func:`read_request`."""
    request = read_request(config.config, server, drafting)
    is_live = request.options.live is not None
    if not is_live and (config.HasField("endpointing") or config.continue_unverified):
        raise InvalidRequest("endpointing and continue_unverified are for live audio: set decoding.live too.")
    if config.added_latency_ms and not server.allow_latency_injection:
        raise InvalidRequest(
            "This server does not inject latency: leave added_latency_ms out, or start the draft server with "
            "--allow-latency-injection."
        )
    check_between("added_latency_ms", config.added_latency_ms, 0, MAX_ADDED_LATENCY_MS)
    if config.config.encoding != decoding_pb2.AUDIO_ENCODING_LINEAR16:
        raise InvalidRequest(
            "Streamed audio must be LINEAR16: set the encoding, or send a file to Recognize."
        )
    for name in ("audio_track", "container_times", "strict"):
        if getattr(request.options, name) != getattr(DEFAULTS, name):
            raise InvalidRequest(f"{name} is for recordings that are sent whole: leave it out of a stream.")
    endpointing = codec.endpointing_from_proto(config.endpointing) if is_live else None
    return replace(request, endpointing=endpointing, added_latency_ms=config.added_latency_ms)


async def first_of(requests: AsyncIterator[Request]) -> Request:
    """Return a stream's first message, which has its ``streaming_config``, in our API and in Riva's."""
    async for first in requests:
        if first.WhichOneof("streaming_request") == "streaming_config":
            return first
        break
    raise InvalidRequest("A stream begins with streaming_config; this one began with something else.")


def decode_recording(
    config: pb.RecognitionConfig, audio: bytes, max_audio_s: float, warn: Warn = ignore
) -> Iterator[bytes]:
    if config.encoding == decoding_pb2.AUDIO_ENCODING_LINEAR16:
        stream = canonical_stream(config)
        yield from map(stream.push, cut(audio))
        yield stream.finish()
    elif config.encoding not in decoding_pb2.AudioEncoding.values():
        raise InvalidRequest(f"Audio encoding {config.encoding} is unknown: leave it out for a file.")
    else:
        options = codec.recognition_config_from_proto(config)
        yield from decode_file(BytesIO(audio), max_audio_s, warn, options)


def cut(audio: bytes) -> Iterator[bytes]:
    for start in range(0, len(audio), MAX_PIECE_BYTES):
        yield audio[start : start + MAX_PIECE_BYTES]


def canonical_stream(config: pb.RecognitionConfig) -> CanonicalStream:
    mixer = Mixer(codec.recognition_config_from_proto(config).channel)
    return CanonicalStream(config.sample_rate_hertz, config.audio_channel_count or 1, mixer)


async def read_audio(
    requests: AsyncIterator[pb.StreamingRecognizeRequest], stream: CanonicalStream, hints: HintFeed
) -> AsyncGenerator[bytes | EndUtterance]:
    """Yield a stream's audio as canonical PCM, and ends of utterances.

    Hints are put into ``hints``.
    """
    async for request in requests:
        match request.WhichOneof("streaming_request"):
            case "audio_content":
                if len(request.audio_content) > MAX_PIECE_BYTES:
                    raise MessageTooLarge(
                        f"A piece of audio has {len(request.audio_content)} bytes: a stream takes at most "
                        f"{MAX_PIECE_BYTES} in a message."
                    )
                yield stream.push(request.audio_content)
            case "flac_content":
                yield await asyncio.to_thread(
                    flac.decode, request.flac_content, MAX_PIECE_BYTES // BYTES_PER_SAMPLE
                )
            case "hint":
                hints.put(codec.hint_from_proto(request.hint))
            case "end_utterance":
                yield EndUtterance()
            case _:
                raise InvalidRequest(
                    "After its streaming_config a stream takes audio_content, flac_content, hint, "
                    "end_utterance and ping."
                )
    yield stream.finish()


async def without_first(
    num_samples: int, audio: AsyncIterator[bytes | EndUtterance]
) -> AsyncGenerator[bytes | EndUtterance]:
    num_bytes = num_samples * BYTES_PER_SAMPLE
    async for piece in audio:
        if isinstance(piece, bytes):
            num_skipped = min(num_bytes, len(piece))
            num_bytes -= num_skipped
            piece = piece[num_skipped:]
        yield piece


async def with_observers(
    audio: AsyncIterator[bytes | EndUtterance], *observers: Callable[[bytes], None]
) -> AsyncGenerator[bytes | EndUtterance]:
    async for piece in audio:
        if isinstance(piece, bytes):
            for observe in observers:
                observe(piece)
        yield piece


class WithIdleTimeout(Generic[Request]):
    """Ends a client's requests if none arrives for some time.

    Iterate over it instead of the requests, within :meth:`error_at_end`. The audio so far is transcribed as
    if the client had ended it. Then the call ends with :class:`IdleClient`.

    ``timeout_s``: longest time between two requests.
    """

    def __init__(self, requests: AsyncIterator[Request], timeout_s: float) -> None:
        self._requests = requests
        self._timeout_s = timeout_s
        self._has_expired = False

    async def __aiter__(self) -> AsyncGenerator[Request]:
        requests = aiter(self._requests)
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    request = await anext(requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                self._has_expired = True
                return
            yield request

    @contextmanager
    def error_at_end(self) -> Iterator[None]:
        """Raise :class:`IdleClient` at the end of the block if the timeout has expired."""
        try:
            yield
        except InvalidRequest:
            if not self._has_expired:  # otherwise it only reports where the client stopped
                raise
        if self._has_expired:
            raise IdleClient(f"The client has sent nothing for {self._timeout_s:g} s: its stream has ended.")
