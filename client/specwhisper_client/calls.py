"""The calls of a transcription: audio goes up and text comes down; after a loss another call follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.current_call import REQUEST_ID, current_request_id
from specwhisper.rpc.channels import with_true_status
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.tasks import NextItem
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import EndUtterance, Segment, TimedHint
from specwhisper.wire import SILENCE_S, WELCOME_S, codec, flac
from specwhisper.wire.pacing import PacedStream, SendWindow
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import model_from_proto, update_from_proto
from specwhisper_client.servers import Attempts, Servers
from specwhisper_client.updates import Update

logger = logging.getLogger(__name__)

OPEN_TEXT = ("verified_text", "stable_text", "tentative_text", "settled_text")
NUM_PARTS = 3  # in which a time limit is waited for

Piece = bytes | TimedHint | EndUtterance  # what is sent


class Calls:
    """Runs the calls of one transcription, and sums their responses.

    Attributes
    ----------
    model : the pair of models that writes the text; ``None`` until a server has named it.
    language, language_name, language_probs : the last utterance's language, its English name, and the
        probability of each language, once all text is final.
    statistics : the draft's figures. If updates have none, the part of a lost or changed call after its last
        resume point is missing.
    received_s : seconds of audio that servers have received.
    """

    def __init__(self, servers: Servers, received_s: float = 0.0) -> None:
        self.model: ModelInfo | None = None
        self.language = self.language_name = ""
        self.language_probs: Mapping[str, float] = {}
        self.statistics = SpeculationStatistics()
        self.received_s = received_s
        self._servers = servers
        self._attempts = Attempts(servers)
        self._request_id = current_request_id()  # the same for all calls
        self._call: Any = None  # the last one
        self._is_complete = False  # whether the last response of the call was received
        self._is_blank = True  # whether the call has had no text
        self._earlier = self.statistics  # earlier calls'
        self._shown = Update(())  # the last one

    async def _run_call(
        self, request: Callable[[], tuple[pb.StreamingRecognitionConfig, AsyncIterator[Piece]]]
    ) -> AsyncGenerator[tuple[pb.StreamingRecognizeResponse, Update]]:
        """Run a call; yield its responses, each with its update in which all calls are counted.

        Parameters
        ----------
        request : returns what the call sends, once there is a connection.
        """
        self._earlier, self._is_complete, self._is_blank = self.statistics, False, True
        async with self._attempts.connection() as connection:
            stub = TranscriptionStub(connection.channel)
            self._call = stub.StreamingRecognize(metadata=((REQUEST_ID, self._request_id),))
            try:
                exchanged = exchange(self._call, *request(), connection.window)
                async with aclosing(exchanged) as responses:
                    async for response in responses:
                        update = self._add(response)
                        # A response that only names models must not make the caller remove any text.
                        if not response.HasField("model") or response.HasField("audio_received"):
                            yield response, update
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error, connection.address) from error

    def _add(self, response: pb.StreamingRecognizeResponse) -> Update:
        update = update_from_proto(response)
        # A call that resumes sends again the audio that was not final.
        self.received_s = max(self.received_s, update.received_s)
        update = replace(update, received_s=self.received_s)
        if update.statistics is not None:
            self.statistics = self._earlier.followed_by(update.statistics)
            update = replace(update, statistics=self.statistics)
        if response.HasField("model"):
            if self.model is None:  # the address was right
                self._attempts.progressed()
            self.model = model_from_proto(response.model)
        if response.HasField("language"):
            self._is_complete = True
            self.language, self.language_name = response.language.code, response.language.name
            self.language_probs = dict(response.language.probabilities)
        self._is_blank &= not (update.text or update.segments or self._is_complete)
        if self._is_blank:  # the text of the call before will come again
            update = replace(update, **{name: getattr(self._shown, name) for name in OPEN_TEXT})
        self._shown = update
        return update

    async def _retry(self, error: SpecWhisperError, timeout_s: float) -> None:
        """Prepare another call after a loss; raise the error if the time is over."""
        await self._attempts.retry(error, timeout_s)
        log = {"request": self._request_id, "server": self._attempts.address, "error": str(error)}
        logger.info("server lost", extra=log)

    def transcription(self, segments: Iterable[Segment], **more: Any) -> Transcription:
        """Return the result, with the models and languages that servers have named."""
        return Transcription(
            tuple(segments),
            language=self.language,
            language_name=self.language_name,
            language_probs=self.language_probs,
            stats=self.statistics,
            model=self.model or ModelInfo(),
            **more,
        )


async def exchange(
    call: Any,
    config: pb.StreamingRecognitionConfig,
    audio: AsyncIterator[Piece],
    window: SendWindow | None = None,
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Send pieces through a ``StreamingRecognize`` call; yield responses.

    The call ends with the error of a lost connection if the server sends nothing, not even a heartbeat.
    gRPC's keepalive does not show this: its threads answer even if the server hangs.

    Audio is read as fast as the server accepts it and the connection's ``window`` has room. On a slow link it
    is sent as FLAC. An error of the audio or of the call is raised here. Closing the iterator cancels the
    call.
    """
    config.with_heartbeats = True
    call = with_true_status(call)
    silence_s = WELCOME_S
    paced = PacedStream(window or SendWindow())
    sender = asyncio.create_task(_send(call, config, audio, paced))
    try:
        responses = aiter(call)
        while (response := await _next(responses, silence_s)) is not None:
            silence_s = SILENCE_S
            if response.ping:
                paced.taken(response.ping)
                continue
            paced.on_other_response()
            if not response.heartbeat:
                yield response
    except asyncio.CancelledError:
        if sender.done() and not sender.cancelled() and (failure := sender.exception()):
            raise failure from None
        raise
    finally:
        call.cancel()
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


async def _next(
    responses: AsyncIterator[pb.StreamingRecognizeResponse], silence_s: float
) -> pb.StreamingRecognizeResponse | None:
    """Return the server's next response; ``None`` after the last."""
    async with NextItem(responses) as pending:
        # In parts: if this process itself was stopped, that counts as a single part.
        for _ in range(NUM_PARTS):
            if await pending.wait(timeout_s=silence_s / NUM_PARTS):
                return pending.item
    raise grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details=f"nothing has come for {silence_s:g} s",
    )


def _parts(piece: Piece, paced: PacedStream) -> Iterator[Piece]:
    """Yield a piece of audio in messages that are short for the link's rate."""
    if not isinstance(piece, bytes):
        yield piece
        return
    while piece:
        part = piece[: paced.piece_bytes(len(piece))]
        yield part
        piece = piece[len(part) :]


def _request(piece: Piece, *, as_flac: bool) -> pb.StreamingRecognizeRequest:
    if isinstance(piece, EndUtterance):
        return pb.StreamingRecognizeRequest(end_utterance=pb.EndUtterance())
    if isinstance(piece, TimedHint):
        return pb.StreamingRecognizeRequest(hint=codec.hint_to_proto(piece))
    if as_flac:
        return pb.StreamingRecognizeRequest(flac_content=flac.encode(piece))
    return pb.StreamingRecognizeRequest(audio_content=piece)


async def _send(
    call: Any,
    config: pb.StreamingRecognitionConfig,
    audio: AsyncIterator[Piece],
    paced: PacedStream,
) -> None:
    try:
        await call.write(pb.StreamingRecognizeRequest(streaming_config=config, ping=paced.ping()))
        async for piece in audio:
            for part in _parts(piece, paced):
                async for ping in paced.pings_until_room():
                    await call.write(pb.StreamingRecognizeRequest(ping=ping))
                request = _request(part, as_flac=paced.is_slow)
                paced.window.sent(request.ByteSize())
                request.ping = paced.ping() if paced.window.needs_ping else 0
                await call.write(request)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the server has ended the call: reading the responses raises its error
    except Exception:
        call.cancel()
        raise
