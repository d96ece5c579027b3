"""The gRPC service of the target, in front of the engine's thread.

A session has its own call, ``Verify``, for audio, hints and control. Its candidates, windows and commits go
through its draft server's ``Share`` call (:mod:`.candidate_call`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, closing
from functools import partial
from time import monotonic_ns, perf_counter_ns
from typing import Any

from specwhisper import __version__
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    PairMismatch,
    ServerFull,
    SessionExpired,
)
from specwhisper.live import LivePosition
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.observe.current_call import ANONYMOUS, caller
from specwhisper.observe.tracing import WindowSpans, note_event
from specwhisper.options import DecodingOptions
from specwhisper.rpc.calls import Evictor, lasting
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.rpc.tokens import Leases
from specwhisper.types import AudioChunk, Failed, Finished, Mode, ToTarget
from specwhisper.wire import HEARTBEAT_S, PROTOCOL_VERSION, check_protocol, codec
from specwhisper.wire.v1 import decoding_pb2, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server.candidate_call import (
    CandidateCall,
    CandidateCalls,
    OwnResponses,
    TargetMetrics,
    next_in_time,
    next_of_share,
)

logger = logging.getLogger(__name__)

# Most that may wait for the engine's next step, for each session:
MAX_POSTED_MESSAGES = 32
MAX_POSTED_BYTES = 1024 * 1024  # a compressed message may hold many samples
MAX_UNREAD = 64  # responses in a session's own call; with more, heartbeats aren't echoed


class VerificationService(verification_pb2_grpc.VerificationServicer):
    """Answers ``Locate``, ``Describe``, ``Verify`` and ``Share`` for one checkpoint."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: TargetEngine,
        serving: ServingOptions,
        metrics: TargetMetrics | None = None,
        leases: Leases | None = None,
        *,
        is_standby: bool = False,
    ) -> None:
        self._is_standby = is_standby
        self.metrics = metrics or TargetMetrics(checkpoint)
        self._checkpoint = checkpoint
        self._engine = engine
        self._verifier = engine.verifier
        self._thread = engine.thread
        self._serving = serving
        self._leases = leases
        limits = engine.verifier.limits
        self._limiter = SessionLimiter("The target", limits.max_sessions, serving.max_sessions_per_token)
        # Twice as many as sessions: such a call may briefly outlast its sessions.
        per_token = serving.max_sessions_per_token
        self._call_limiter = SessionLimiter(
            "The target", 2 * limits.max_sessions, per_token and 2 * per_token, counted="`Share` calls"
        )
        self._candidate_calls = CandidateCalls()
        self._drains = asyncio.Event()

    @property
    def num_sessions(self) -> int:
        return self._verifier.limits.max_sessions - self._verifier.num_free_slots

    @property
    def weights_digest(self) -> str:
        return self._checkpoint.weights_digest

    @property
    def vocabulary_digest(self) -> str:
        return self._checkpoint.vocabulary.digest

    @property
    def has_room(self) -> bool:
        try:
            self._verifier.check_room()
        except ServerFull:
            return False
        return True

    @property
    def answer_ms(self) -> float:
        """Mean time from candidates to their commit, in milliseconds."""
        return self._verifier.answer_ms

    async def check_health(self) -> None:
        """Return once the engine has finished earlier work; see :class:`TargetEngine`."""
        await self._engine.check_health()

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        """Offer this server for a session.

        The empty address in the response means this server.
        """
        return await self.locate(request, caller.get())

    async def locate(self, request: pb.LocateRequest, caller: str) -> pb.LocateResponse:
        """Return the free slots, the expected answer time, and a lease for the named caller.

        Raises
        ------
        ServerFull
            if there is no room for its session.
        PairMismatch
            if the session needs another target, whether or not there is room.
        TargetUnavailable
            while the engine hangs.
        """
        if request.protocol_version:
            self._check_protocol(request.protocol_version, request.software_version)
        self._check_weights(request.vocabulary_digest, request.weights_digest)
        self._limiter.check(caller)
        # In the engine's order of work, so that a session that has just ended frees its slot first.
        num_free = await self._engine.check_room()
        lease = self._leases.grant(caller) if self._leases is not None else ""
        return pb.LocateResponse(
            free_slots=num_free,
            lease=lease,
            is_standby=self._is_standby,
            answer_s=self._verifier.next_answer_ms / 1_000,
        )

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        checkpoint = self._checkpoint
        is_known = request.vocabulary_digest == checkpoint.vocabulary.digest
        return pb.DescribeResponse(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            model=checkpoint.name,
            weights_digest=checkpoint.weights_digest,
            vocabulary_digest=checkpoint.vocabulary.digest,
            vocabulary=None if is_known else codec.vocabulary_to_proto(checkpoint.vocabulary),
            num_mel_bins=checkpoint.num_mel_bins,
            limits=codec.limits_to_proto(self._verifier.limits),
        )

    async def Verify(
        self, requests: AsyncIterator[pb.VerifyRequest], context: Any
    ) -> AsyncIterator[pb.VerifyResponse]:
        received = aiter(requests)
        hello = await self._hello(received)
        mode, options = self._agree(hello)
        session_id = secrets.token_hex(8)
        log = {"session": session_id, "draft_session": hello.session[:64]}
        if (name := caller.get()) != ANONYMOUS:
            log["caller"] = name
        own: OwnResponses = asyncio.Queue()
        async with AsyncExitStack() as held:
            held.enter_context(self.metrics.session(mode))
            held.enter_context(self._limiter.admit(name))
            call = await self._candidate_calls.find(name, hello.share_key)
            windows = held.enter_context(closing(WindowSpans()))
            joined = held.enter_context(call.joined(hello.share_number, session_id, own, windows))
            await held.enter_async_context(self._engine.session(session_id, mode, options, joined.receive))
            note_event("session opened", **log, mode=mode.value)
            opened = {"mode": mode.value, "draft": hello.draft_model[:64]}
            logger.info("session opened", extra={**log, **opened})
            tasks = [
                asyncio.create_task(self._read(session_id, received, own)),
                asyncio.create_task(self._send_going_away(own)),
                asyncio.create_task(_send_heartbeats(own)),
            ]
            try:
                yield pb.VerifyResponse(
                    welcome=pb.Welcome(
                        weights_digest=self._checkpoint.weights_digest,
                        limits=codec.limits_to_proto(self._verifier.limits),
                    )
                )
                while not isinstance(answer := await own.get(), Finished):
                    if isinstance(answer, Failed):
                        raise answer.error
                    yield answer
            finally:
                for task in tasks:
                    task.cancel()
                logger.info("session closed", extra=log)

    @lasting
    async def Share(
        self, requests: AsyncIterator[pb.ShareRequest], context: Any
    ) -> AsyncIterator[pb.ShareResponse]:
        name = caller.get()
        call = CandidateCall(
            self._verifier,
            self._thread,
            len(self._checkpoint.vocabulary),
            self.metrics,
            Evictor(context, count_error=self.metrics.count_error),
            self._serving.idle_timeout_s,
        )
        with self._call_limiter.admit(name):
            received = aiter(requests)  # not earlier: gRPC warns of an unused iterator
            first = await next_of_share(received) or pb.ShareRequest()
            async with self._candidate_calls.opened(name, first.key, call):
                if self._drains.is_set():
                    call.drain()
                async with aclosing(call.serve(first, received)) as responses:
                    async for response in responses:
                        yield response

    async def announce_drain(self) -> None:
        """Announce to every open session that this server stops, so that it migrates."""
        self._drains.set()
        self._candidate_calls.drain()

    def _agree(self, hello: pb.Hello) -> tuple[Mode, DecodingOptions]:
        """Check what a session needs, and its lease; return its mode and options."""
        self._check_protocol(hello.protocol_version, hello.software_version)
        if self._leases is not None:
            self._leases.check(hello.lease, caller.get())
        if not hello.vocabulary_digest:
            raise InvalidRequest("The hello has no vocabulary_digest: set that of the session's tokens.")
        self._check_weights(hello.vocabulary_digest, hello.weights_digest, hello.draft_model)
        return codec.mode_from_proto(hello.mode), codec.decoding_options_from_proto(hello.decoding)

    @staticmethod
    def _check_protocol(version: int, software: str) -> None:
        check_protocol("The draft server", version, software, here="this target", own=PROTOCOL_VERSION)

    def _check_weights(self, vocabulary_digest: str, weights_digest: str, draft: str = "") -> None:
        checkpoint = self._checkpoint
        if vocabulary_digest not in ("", checkpoint.vocabulary.digest):
            name = f"Draft '{draft}'" if draft else "The draft"
            raise PairMismatch(
                f"{name} was set up for another vocabulary than that of target '{checkpoint.name}': "
                "restart the draft server, or connect it to the target it was set up for."
            )
        if weights_digest not in ("", checkpoint.weights_digest):
            raise PairMismatch(
                f"This session began on other weights than those of target '{checkpoint.name}': "
                "keep a target with those until their sessions have ended."
            )

    async def _read(
        self, session_id: str, requests: AsyncIterator[pb.VerifyRequest], own: OwnResponses
    ) -> None:
        """Pass the draft's messages to the engine; an invalid one ends the session."""
        has_all_audio = False
        num_posted = num_posted_bytes = 0
        try:
            while (request := await self._next(requests)) is not None:
                if request.WhichOneof("message") == "heartbeat":
                    echo = pb.Heartbeat(echo_ns=request.heartbeat.sent_ns)
                    if own.qsize() < MAX_UNREAD:  # a caller that reads nothing is evicted by its call's limit
                        own.put_nowait(pb.VerifyResponse(heartbeat=echo))
                    continue
                if request.audio.encoding == decoding_pb2.AUDIO_ENCODING_FLAC:
                    message = await asyncio.to_thread(self._message, request)  # decoding takes CPU time
                else:
                    message = self._message(request)
                self.metrics.engine.on_message(message)
                has_all_audio |= isinstance(message, AudioChunk) and message.is_last
                submit = partial(self._verifier.submit, session_id, message, perf_counter_ns())
                num_posted += 1
                num_posted_bytes += len(message.pcm) if isinstance(message, AudioChunk) else 0
                if num_posted < MAX_POSTED_MESSAGES and num_posted_bytes < MAX_POSTED_BYTES:
                    self._thread.post(submit)
                else:
                    await self._thread.call(submit)
                    num_posted = num_posted_bytes = 0
            if not has_all_audio:
                own.put_nowait(Failed(InvalidAudio("The draft server left before the last audio message.")))
        except Exception as error:
            own.put_nowait(Failed(error))

    async def _next(self, requests: AsyncIterator[pb.VerifyRequest]) -> pb.VerifyRequest | None:
        limit_s = self._serving.idle_timeout_s
        silent = SessionExpired(f"The draft server has sent nothing for {limit_s:g} s.")
        return await next_in_time(requests, limit_s, silent)

    async def _hello(self, requests: AsyncIterator[pb.VerifyRequest]) -> pb.Hello:
        first = await self._next(requests)
        if first is not None and first.WhichOneof("message") == "hello":
            return first.hello
        raise InvalidRequest("A session begins with a hello; this one began with something else.")

    def _message(self, request: pb.VerifyRequest) -> ToTarget | LivePosition:
        limits = self._verifier.limits
        match request.WhichOneof("message"):
            case "audio":
                return codec.audio_chunk_from_proto(request.audio, max_samples=limits.max_ahead_samples)
            case "hint":
                return codec.hint_from_proto(request.hint)
            case "resume":
                size = len(self._checkpoint.vocabulary)
                return codec.resume_from_proto(request.resume, vocabulary_size=size)
            case "confirm_every":
                return codec.confirm_every_from_proto(request.confirm_every)
            case "position":
                return codec.live_position_from_proto(request.position)
            case kind:
                raise InvalidRequest(f"A session takes no '{kind}' message after its hello.")

    async def _send_going_away(self, own: OwnResponses) -> None:
        await self._drains.wait()
        going_away = pb.GoingAway(reason="the server is stopping", grace_s=self._serving.drain_timeout_s)
        own.put_nowait(pb.VerifyResponse(going_away=going_away))


async def _send_heartbeats(own: OwnResponses) -> None:
    """Send heartbeats without requests: on a slow link the draft's own may wait long."""
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        if own.empty():  # otherwise other responses show the same
            own.put_nowait(pb.VerifyResponse(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns())))
