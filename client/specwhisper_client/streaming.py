"""Live transcription: send audio as it is spoken, receive text meanwhile.

async with StreamingClient("127.0.0.1:50051") as stream:
    ...                                   # in one task: await stream.send(pcm), then await stream.finish()
    async for update in stream:           # in another
        print(*(segment.text for segment in update.segments), update.verified_text, update.draft_text)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

import grpc.aio

from specwhisper.audio.canonical import CanonicalStream, Samples
from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import (
    RETRY_ELSEWHERE,
    IdleClient,
    InvalidRequest,
    PairMismatch,
    ServerFull,
)
from specwhisper.live import EndpointingOptions, LiveOptions, LivePosition
from specwhisper.observe import request_id
from specwhisper.options import OPENAI_THRESHOLDS, DecodingOptions, options_from
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.failover import Failover
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire import codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.exchange import exchange
from specwhisper_client.messages import config_to_proto, model_from_proto, update_from_proto
from specwhisper_client.replies import Update
from specwhisper_client.servers import Connection, Servers
from specwhisper_client.utterances import in_order

logger = logging.getLogger(__name__)

FIRST_CONNECT_S = 5.0  # limit before any server has answered: the address may be wrong
# Live audio has more noise than most recordings.
LIVE_DECODING = DecodingOptions(**OPENAI_THRESHOLDS)


class StreamingClient:
    """One live transcription on a draft server, as a context manager.

    It keeps the audio that is not final yet. If the connection is lost, it opens another one and continues
    after the last final word; no word is lost or repeated.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server, or several with commas between. The stream uses one of their
        addresses, and resumes at another one if it is lost.
    options, named : decoding options as an object, by name, or both: a name then replaces the object's value.
        The default object has openai/whisper's thresholds against noise (``LIVE_DECODING``).
    live : how live audio is decoded.
    endpointing : when utterances begin and end; ``None`` for a single utterance.
    mode, gamma : how draft and target work together; by default the server's own.
    sample_rate, num_channels : of the audio that is sent.
    added_latency_ms : latency injected into the round trip between draft and target server, for experiments;
        refused unless the server has ``--allow-latency-injection``.
    interim_results : whether updates have text that may still change.
    continue_unverified : whether the session continues draft-only while its target cannot be reached.
    reconnect_s : seconds for which to reconnect after a loss.
    credentials : encryption, and the token that identifies the caller.
    servers : shared connections; by default the stream has its own, to ``server``.

    Attributes
    ----------
    model : the pair that writes the text, once the server has named it.
    num_reconnects : how often the connection was lost.
    language, language_name, language_probs : of the last utterance, once all text is final.
    statistics, received_s : over all calls: how the draft did, and seconds of audio that were received.
    """

    def __init__(
        self,
        server: str = "127.0.0.1:50051",
        options: DecodingOptions | None = None,
        *,
        live: LiveOptions | None = None,
        endpointing: EndpointingOptions | None = EndpointingOptions(),  # noqa: B008 (it is frozen)
        mode: Mode | None = None,
        gamma: int | None = None,
        sample_rate: int = SAMPLE_RATE,
        num_channels: int = 1,
        added_latency_ms: int = 0,
        interim_results: bool = True,
        continue_unverified: bool = False,
        reconnect_s: float = 30.0,
        credentials: Credentials = OPEN,
        servers: Servers | None = None,
        **named: Any,
    ) -> None:
        self.options = replace(options_from(options or LIVE_DECODING, named), live=live or LiveOptions())
        self._endpointing = endpointing
        self._mode = mode
        self._gamma = gamma
        self._canonical = CanonicalStream(sample_rate, num_channels)
        self._added_latency_ms = added_latency_ms
        self._interim_results = interim_results
        self._continue_unverified = continue_unverified
        self._reconnect_s = reconnect_s
        self._servers = servers or Servers(server, credentials)
        self._owns_servers = servers is None
        self._audio = KeptAudio(self.position.start_sample)
        self._is_iterated = False
        self._request_id = request_id.current_request_id()  # the same for all calls
        self._call: Any = None
        self._has_changed = False  # settings: the open call was cancelled for it
        self._all_is_final = False  # all text of the audio that the last call received
        self.model: ModelInfo | None = None
        self.num_reconnects = 0
        self.language = self.language_name = ""
        self.language_probs: Mapping[str, float] = {}
        self.statistics = SpeculationStatistics()
        self.received_s = self._final_end_s = self.position.start_sample / SAMPLE_RATE

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

        It waits while the server does not keep up, and while the updates are not read: send in one task and
        read in another. Once the stream has ended, samples are dropped; the reader gets the error.
        """
        await self._audio.put(self._canonical.push(samples))

    @property
    def position(self) -> LivePosition:
        """Position at which another stream would continue."""
        return self._live.position

    @property
    def _live(self) -> LiveOptions:
        return self.options.live or LiveOptions()

    def change(
        self, *, mode: Mode | None = None, gamma: int | None = None, added_latency_ms: int = 0
    ) -> None:
        """Continue with other settings after the last final word, in another call.

        Settings that are not named are the server's own.
        """
        self._mode, self._gamma, self._added_latency_ms = mode, gamma, added_latency_ms
        if self._call is not None:  # false if it has ended already
            self._has_changed = self._call.cancel() or self._has_changed

    async def finish(self) -> None:
        """End the audio; the text so far becomes final."""
        try:
            await self._audio.put(self._canonical.finish())
        finally:  # also if the samples are cut off: otherwise the stream would wait for more
            self._audio.finish()

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Yield updates until all text is final."""
        if self._is_iterated:
            raise InvalidRequest("A stream is read once: open another one.")
        self._is_iterated = True
        failover, has_answered = Failover(min(FIRST_CONNECT_S, self._reconnect_s)), False
        attempts = self._servers.attempts()
        try:
            while True:
                try:
                    async with (
                        attempts.connection() as connection,
                        aclosing(self._updates(connection)) as updates,
                    ):
                        async for update in updates:
                            failover.progressed()
                            attempts.progressed()
                            yield update
                    if not self._has_changed:
                        return
                    self._has_changed = False
                except IdleClient:  # the server gave the slot to another session
                    received_to = round(self.received_s * SAMPLE_RATE)
                    if self._all_is_final and not await self._audio.continues_after(received_to):
                        return
                except RETRY_ELSEWHERE as error:
                    is_elsewhere = await attempts.failed(error)
                    # A full server that had taken the stream may still count the call that was lost.
                    if isinstance(error, ServerFull) and self.model is None and not is_elsewhere:
                        raise
                    is_new = not failover.is_retrying
                    if self.model is not None and not has_answered:
                        failover, has_answered = Failover(self._reconnect_s), True
                    await failover.wait(error, is_elsewhere=is_elsewhere)
                    log = {"request": self._request_id, "server": attempts.address, "error": str(error)}
                    logger.info("connection lost", extra=log)
                    self.num_reconnects += is_new
        finally:
            self._audio.finish()  # audio from here on is dropped

    async def _updates(self, connection: Connection) -> AsyncGenerator[Update]:
        """Run one call, from the last position on."""
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(self.options, self._mode, self._gamma, is_container=False),
            interim_results=self._interim_results,
            endpointing=codec.endpointing_to_proto(self._endpointing),
            continue_unverified=self._continue_unverified,
            added_latency_ms=self._added_latency_ms,
            target_weights_digest=self.model.target_weights_digest if self.model is not None else "",
        )
        before, audio = self.statistics, self._audio.pieces(self.position.start_sample)
        self._all_is_final = False
        metadata = ((request_id.KEY, self._request_id),)
        self._call = TranscriptionStub(connection.channel).StreamingRecognize(metadata=metadata)
        try:
            async with aclosing(exchange(self._call, config, audio)) as responses:
                async for response in responses:
                    if response.HasField("model"):
                        self._note_model(model_from_proto(response.model), connection)
                        continue
                    if response.HasField("position"):
                        self._move_to(response.position)
                    yield self._read(response, before)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, connection.address) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._has_changed or (task is not None and task.cancelling()):
                raise

    def _note_model(self, model: ModelInfo, connection: Connection) -> None:
        """Note the models; a stream does not continue with another target's weights."""
        if self.model is not None and self.model.target_weights_digest != model.target_weights_digest:
            raise PairMismatch(
                f"The server at {connection.address} now has a target '{model.target}' whose weights are not "
                f"those of the '{self.model.target}' that the stream began on: open another stream."
            )
        self.model = model

    def _read(self, response: pb.StreamingRecognizeResponse, before: SpeculationStatistics) -> Update:
        """Read a response; ``before`` is the statistics of earlier calls."""
        update = update_from_proto(response)
        # A call that resumes sends again the audio that was not final.
        self.received_s = max(self.received_s, update.received_s)
        segments = in_order(update.segments, self._final_end_s)
        self._final_end_s = segments[-1].end_s if segments else self._final_end_s
        update = replace(update, received_s=self.received_s, segments=segments)
        if update.statistics is not None:
            self.statistics = before.followed_by(update.statistics)
            update = replace(update, statistics=self.statistics)
        if response.HasField("language"):  # the last response
            self._all_is_final = True
            self.language, self.language_name = response.language.code, response.language.name
            self.language_probs = dict(response.language.probabilities)
        return update

    def _move_to(self, message: decoding_pb2.LivePosition) -> None:
        """Note the position at which another call would continue."""
        position = codec.live_position_from_proto(message)
        self.options = replace(self.options, live=replace(self._live, position=position))
        self._audio.forget_before(position.start_sample)
