"""The calls of one transcription: if a server is lost, another call continues at another one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc.aio

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.current_call import REQUEST_ID, current_request_id
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Segment
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import model_from_proto, update_from_proto
from specwhisper_client.exchange import Piece, exchange
from specwhisper_client.servers import Attempts, Servers
from specwhisper_client.updates import Update

logger = logging.getLogger(__name__)

OPEN_TEXT = ("verified_text", "stable_text", "tentative_text", "settled_text")


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
