"""The parity audit: now and then a recording is decoded again by the target alone, and must read the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

from specwhisper.errors import ServerFull
from specwhisper.observe.request_id import request_id
from specwhisper.options import Acceptance, DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode, Segment
from specwhisper_draft_server.link.grpc_target_stream import PIECE_BYTES
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.session import Session, SessionRequest

logger = logging.getLogger(__name__)

MAX_SPOOLED_BYTES = 64 * 1024 * 1024  # of all recordings that are kept for it: 35 minutes
FULL, SIZE, FAILED = "full", "size", "failed"  # why one was left out

Tokens = Sequence[Sequence[int]]  # of each window


@dataclass(slots=True)
class _Spool:
    """A recording that is to be heard again.

    Attributes
    ----------
    pcm : what was sent so far; ``None`` once that is too much.
    written : what became of it.
    """

    session_id: str
    request: SessionRequest
    target: TargetDescription
    request_id: str = field(default_factory=request_id.get)
    pcm: bytearray | None = field(default_factory=bytearray)
    written: Tokens = ()


class ParityChecker:
    """Decodes one recording in so many again, one at a time, beside the sessions of clients.

    It never holds up a client: it begins when a session is over, and leaves a target that has no room for
    another session after the window that is open. Live audio is not audited: how it is cut into steps depends
    on the moment. Nor are recordings that began elsewhere, and options with which the text may differ from
    the target's own.

    Parameters
    ----------
    every : of so many recordings one is decoded again; ``None`` for none.
    """

    def __init__(self, every: int | None, transcriber: Transcriber, metrics: DraftMetrics) -> None:
        self._every = every
        self._transcriber = transcriber
        self._metrics = metrics
        self._num_recordings = 0
        self._num_spooled_bytes = 0
        self._waiting: asyncio.Queue[_Spool] = asyncio.Queue()
        self._auditing: asyncio.Task[None] | None = None

    def run(
        self,
        session: Session,
        request: SessionRequest,
        target: TargetDescription,
        audio: AsyncIterator[bytes],
    ) -> AsyncGenerator[list[Segment]]:
        """Run a recording's session; where its turn has come, keep what it hears and what is written."""
        if not self._is_chosen(request.options):
            return session.run(audio)
        return self._run_spooled(session, _Spool(session.id, request, target), audio)

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._auditing is not None:
            self._auditing.cancel()
            await asyncio.gather(self._auditing, return_exceptions=True)

    def _is_chosen(self, options: DecodingOptions) -> bool:
        if self._every is None or options.is_lossy or options.acceptance is Acceptance.CLASSICAL:
            return False
        self._num_recordings += 1
        return self._num_recordings % self._every == 0

    async def _run_spooled(
        self, session: Session, spool: _Spool, audio: AsyncIterator[bytes]
    ) -> AsyncGenerator[list[Segment]]:
        is_complete = False
        try:
            async with aclosing(session.run(self._spooled(spool, audio))) as updates:
                async for segments in updates:
                    yield segments
            is_complete = True
        finally:
            if not is_complete:
                self._free(spool)
        if spool.pcm is not None:
            spool.target, spool.written = session.target, _written(session)
            self._waiting.put_nowait(spool)
            # In a context of its own: an audit is part of no call.
            self._auditing = self._auditing or asyncio.create_task(self._audit_all(), context=Context())

    async def _spooled(self, spool: _Spool, audio: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for pcm in audio:
            if spool.pcm is not None:
                spool.pcm += pcm
                self._num_spooled_bytes += len(pcm)
                if self._num_spooled_bytes > MAX_SPOOLED_BYTES:
                    self._free(spool)
                    self._skip(spool, SIZE)
            yield pcm

    def _free(self, spool: _Spool) -> None:
        self._num_spooled_bytes -= len(spool.pcm or b"")
        spool.pcm = None

    def _skip(self, spool: _Spool, reason: str, error: Exception | None = None) -> None:
        self._metrics.audits_skipped.labels(reason).inc()
        log = {"session": spool.session_id, "reason": reason} | ({"error": str(error)} if error else {})
        logger.info("audit skipped", extra=log)

    async def _audit_all(self) -> None:
        while True:
            spool = await self._waiting.get()
            request_id.set(spool.request_id)
            try:
                await self._audit(spool)
            except ServerFull as error:
                self._skip(spool, FULL, error)
            except Exception as error:
                self._skip(spool, FAILED, error)
            finally:
                self._free(spool)

    async def _audit(self, spool: _Spool) -> None:
        alone = replace(spool.request, length=DraftLength.of(Mode.TARGET_ONLY, None), added_latency_ms=0)
        session = Session(alone, self._transcriber, spool.target, None, same_weights=True)
        find_room = partial(self._transcriber.find_room, spool.target, same_weights=True)
        await find_room()
        is_first = True
        async with aclosing(session.run(_pieces(spool.pcm or bytearray()))) as updates:
            async for segments in updates:
                if segments or is_first:
                    await find_room()  # for clients, beside this
                    is_first = False
        self._metrics.audited.inc()
        written = _written(session)
        log: dict[str, object] = {"session": spool.session_id, "audit": session.id}
        if (found := first_difference(spool.written, written)) is None:
            logger.info("audited", extra=log)
            return
        self._metrics.differences.inc()
        window, position = found
        tokens = {"written": _token(spool.written, *found), "target_only": _token(written, *found)}
        mode = spool.request.length.mode.value
        logger.error(
            "transcript differs", extra=log | {"mode": mode, "window": window, "position": position} | tokens
        )


def first_difference(one: Tokens, other: Tokens) -> tuple[int, int] | None:
    """Give the first window and position at which two texts differ; ``None`` where they are the same."""
    for window, (tokens, others) in enumerate(zip_longest(one, other, fillvalue=())):
        for position, (token, another) in enumerate(zip_longest(tokens, others)):
            if token != another:
                return window, position
    return None


def _written(session: Session) -> Tokens:
    builder = session.builder
    return builder.finish().window_tokens if isinstance(builder, TranscriptBuilder) else ()


def _token(tokens: Tokens, window: int, position: int) -> int | None:
    """Give the token there, if there is one."""
    there = tokens[window] if window < len(tokens) else ()
    return there[position] if position < len(there) else None


async def _pieces(pcm: bytearray) -> AsyncIterator[bytes]:
    for start in range(0, len(pcm), PIECE_BYTES):
        yield bytes(pcm[start : start + PIECE_BYTES])
