"""Live transcription: audio goes up as it is spoken, text comes down as it is written.

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
# Live audio has more noise in it than recordings that somebody chose.
LIVE_DECODING = DecodingOptions(**OPENAI_THRESHOLDS)


class StreamingClient:
    """One live transcription on a draft server; a context manager around it.

    It keeps the audio that is not final yet. Where the connection is lost, it opens another one, goes on from
    the last final word and neither loses nor repeats one.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server, or several with commas between. The stream takes any of their
        addresses, and goes on at another one where one is lost.
    options, named : decoding options as an object, by name, or both: a name then replaces the object's value.
        The default object has openai/whisper's thresholds against noise (``LIVE_DECODING``).
    live : how live audio is decoded.
    endpointing : when utterances begin and end; ``None`` takes everything for one.
    mode, gamma : how draft and target work together; by default as the server is set.
    sample_rate, num_channels : of what is sent.
    added_latency_ms : latency injected into the round trip between draft and target server, for experiments;
        refused unless the server has ``--allow-latency-injection``.
    interim_results : whether to tell text that may still change.
    continue_unverified : whether the draft goes on alone while its target cannot be reached.
    reconnect_s : for how long to try again where the connection is lost, in seconds.
    credentials : how the server is reached, and who asks.
    servers : connections that others use too; by default the stream has its own, to ``server``.

    Attributes
    ----------
    model : the pair that writes the text, once the server has named it.
    num_reconnects : how often the connection was lost.
    language, language_name, language_probs : what was spoken last, once all is final.
    statistics, received_s : over all calls: how the draft has done, and the stream's audio that was received.
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
        self._request_id = request_id.current_request_id()  # the same over all calls
        self._call: Any = None
        self._has_changed = False  # how to go on: the call that was under way is given up
        self._all_is_final = False  # of what the open call, or the last one, has received
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
        """Send the next samples: s16le bytes, or float32 or int16 arrays, channels interleaved.

        It returns at once while the server keeps up, and waits while it does not.

        So it also waits while nobody reads the text: send in one task and read in another. Once the stream
        has ended, by an error or because nobody reads on, what is sent is dropped; who reads has the error.
        """
        await self._audio.put(self._canonical.push(samples))

    @property
    def position(self) -> LivePosition:
        """Where another stream would go on."""
        return self._live.position

    @property
    def _live(self) -> LiveOptions:
        return self.options.live or LiveOptions()

    def change(
        self, *, mode: Mode | None = None, gamma: int | None = None, added_latency_ms: int = 0
    ) -> None:
        """Go on in another way, from the last final word; it takes another call.

        What is not named is as the server is set.
        """
        self._mode, self._gamma, self._added_latency_ms = mode, gamma, added_latency_ms
        if self._call is not None:  # it may have ended by itself, or by an earlier change
            self._has_changed = self._call.cancel() or self._has_changed

    async def finish(self) -> None:
        """Say that no audio follows; what is said so far becomes final."""
        try:
            await self._audio.put(self._canonical.finish())
        finally:  # also where the samples break off: else it would be waited for more
            self._audio.finish()

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Give what is new until all is final."""
        if self._is_iterated:
            raise InvalidRequest("A stream is listened to once: open another one.")
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
                except IdleClient:  # the server has given the place to others
                    heard_to = round(self.received_s * SAMPLE_RATE)
                    if self._all_is_final and not await self._audio.continues_after(heard_to):
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
            self._audio.finish()  # nobody reads what is sent from here on

    async def _updates(self, connection: Connection) -> AsyncGenerator[Update]:
        """Run one call, from where the last one ended."""
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
        """Note who writes the text; a stream does not go on with another target's."""
        if self.model is not None and self.model.target_weights_digest != model.target_weights_digest:
            raise PairMismatch(
                f"Behind {connection.address} is now a target '{model.target}' of other weights than the "
                f"'{self.model.target}' that the stream began on: open another stream."
            )
        self.model = model

    def _read(self, response: pb.StreamingRecognizeResponse, before: SpeculationStatistics) -> Update:
        """Read a response, and keep what is not of the moment; ``before`` is what earlier calls counted."""
        update = update_from_proto(response)
        # A call that goes on hears again what was not final.
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
        """Note where another call would go on."""
        position = codec.live_position_from_proto(message)
        self.options = replace(self.options, live=replace(self._live, position=position))
        self._audio.forget_before(position.start_sample)
