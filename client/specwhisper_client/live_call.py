"""One call of a live stream: its settings, its responses, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import grpc.aio

from specwhisper.errors import RETRY_ELSEWHERE, IdleClient, SpecWhisperError
from specwhisper.live import EndpointingOptions
from specwhisper.observe import request_id
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper.wire import codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.attempts import Attempts
from specwhisper_client.codec import config_to_proto, resume_point_to_proto
from specwhisper_client.exchange import Piece, exchange
from specwhisper_client.updates import ResumePoint


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings of a live stream besides its decoding options.

    :class:`specwhisper_client.streaming.StreamingClient` documents them.
    """

    endpointing: EndpointingOptions | None
    mode: Mode | None
    added_latency_ms: int
    interim_results: bool
    continue_unverified: bool
    with_statistics: bool

    def to_proto(
        self, options: DecodingOptions, resume_point: ResumePoint | None
    ) -> pb.StreamingRecognitionConfig:
        """Return a call's configuration."""
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(options, self.mode, None, is_container=False),
            interim_results=self.interim_results,
            endpointing=codec.endpointing_to_proto(self.endpointing),
            continue_unverified=self.continue_unverified,
            added_latency_ms=self.added_latency_ms,
            with_statistics=self.with_statistics,
            with_resume_points=True,
        )
        if resume_point is not None:
            config.resume_point.CopyFrom(resume_point_to_proto(resume_point))
        return config


class CallState(Enum):
    """Whether a call runs, and why it does not."""

    RUNNING = auto()
    CHANGED = auto()  # cancelled: another call continues with other settings
    COMPLETE = auto()  # the server has ended it
    IDLE = auto()  # no audio came, so the server has freed its slot for another session
    LOST = auto()  # the server is lost, stops, or is full


class LiveCall:
    """One call of a live stream.

    Parameters
    ----------
    attempts : choose its connection.
    stream_id : request id, the same for all calls of a stream.

    Attributes
    ----------
    error : why it is :attr:`CallState.LOST`.
    """

    def __init__(self, attempts: Attempts, stream_id: str) -> None:
        self._attempts = attempts
        self._metadata = ((request_id.KEY, stream_id),)
        self._call: Any = None
        self.state = CallState.RUNNING
        self.error = SpecWhisperError()

    async def responses(
        self, config: Callable[[], pb.StreamingRecognitionConfig], audio: AsyncIterator[Piece]
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
        """Send the audio and yield the responses; ``state`` is how they ended.

        Parameters
        ----------
        config : returns the configuration, called once connected: settings may change until then.
        """
        try:
            async with self._attempts.connection() as connection:
                stub = TranscriptionStub(connection.channel)
                self._call = stub.StreamingRecognize(metadata=self._metadata)
                try:
                    exchanged = exchange(self._call, config(), audio, connection.window)
                    async with aclosing(exchanged) as responses:
                        async for response in responses:
                            yield response
                except grpc.aio.AioRpcError as error:
                    raise error_from_rpc(error, connection.address) from error
        except IdleClient:
            self.state = CallState.IDLE
        except RETRY_ELSEWHERE as error:
            self.state, self.error = CallState.LOST, error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.state is not CallState.CHANGED or (task is not None and task.cancelling()):
                raise
        else:
            if self.state is CallState.RUNNING:
                self.state = CallState.COMPLETE

    def change(self) -> None:
        """Cancel it, so that another call continues with other settings."""
        if self._call is not None and self._call.cancel():  # false if it has ended already
            self.state = CallState.CHANGED

    def cancel(self) -> None:
        """Cancel it: the stream is closed."""
        if self._call is not None:
            self._call.cancel()
