"""Decode some recordings again in mode ``target-only``, and compare the texts.

They must be equal, token for token. Any difference is a fault of the software or the hardware.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from specwhisper.errors import ServerFull
from specwhisper.observe.current_call import request_id
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode
from specwhisper.wire.pacing import PIECE_BYTES
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.session import Session, SessionRequest
from specwhisper_draft_server.transcriber import TargetDescription, Transcriber

logger = logging.getLogger(__name__)

MAX_KEPT_BYTES = 64 * 1024 * 1024  # 35 minutes of recordings that wait for their check
FULL, SIZE, FAILED = "full", "size", "failed"  # reasons why a check is skipped

Tokens = Sequence[Sequence[int]]  # by window


@dataclass(slots=True)
class _Recording:
    """A recording to check.

    Attributes
    ----------
    pcm : the audio so far; ``None`` after it was dropped.
    tokens : the text to compare with.
    """

    session_id: str
    request: SessionRequest
    target: TargetDescription
    request_id: str = field(default_factory=request_id.get)
    pcm: bytearray | None = field(default_factory=bytearray)
    tokens: Tokens = ()


class ParityChecker:
    """Checks one recording in ``every``, at the same time as clients' sessions.

    It checks one recording at a time. A check begins after the session, so it never delays a client. If a
    target has no room for another session, the check ends after the open window.

    It doesn't check live audio, recordings that continue from a resume point, and options with which the text
    may differ from the target's own.

    Parameters
    ----------
    every : check one recording in every N; ``None`` checks none.
    """

    def __init__(
        self, every: int | None, transcriber: Transcriber, metrics: DraftMetrics, resume_timeout_s: float
    ) -> None:
        self._resume_timeout_s = resume_timeout_s
        self._every = every
        self._transcriber = transcriber
        self._metrics = metrics
        self._num_recordings = 0
        self._num_kept_bytes = 0
        self._waiting: asyncio.Queue[_Recording] = asyncio.Queue()
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def kept(self, session: Session | None, request: SessionRequest) -> Iterator[Callable[[bytes], None]]:
        """Keep a session's audio if it is chosen for a check.

        The check is queued if the ``with`` block succeeds. Yields a function to call with the session's
        audio, piece by piece. A session of ``None`` is never chosen.
        """
        if session is None or not self._is_chosen(request.options):
            yield lambda _: None
            return
        recording = _Recording(session.id, request, session.target)
        try:
            yield partial(self._keep, recording)
        except BaseException:
            self._drop(recording)
            raise
        if recording.pcm is not None:
            recording.target, recording.tokens = session.target, _tokens(session)
            self._waiting.put_nowait(recording)
            # In its own context: a check isn't part of the client's call.
            self._checking = self._checking or asyncio.create_task(self._check_all(), context=Context())

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    def _is_chosen(self, options: DecodingOptions) -> bool:
        if self._every is None or options.is_lossy:
            return False
        self._num_recordings += 1
        return self._num_recordings % self._every == 0

    def _keep(self, recording: _Recording, pcm: bytes) -> None:
        if recording.pcm is None:
            return
        recording.pcm += pcm
        self._num_kept_bytes += len(pcm)
        if self._num_kept_bytes > MAX_KEPT_BYTES:
            self._drop(recording)
            self._skip(recording, SIZE)

    def _drop(self, recording: _Recording) -> None:
        self._num_kept_bytes -= len(recording.pcm or b"")
        recording.pcm = None

    def _skip(self, recording: _Recording, reason: str, error: Exception | None = None) -> None:
        self._metrics.parity_skipped.labels(reason).inc()
        log = {"session": recording.session_id, "reason": reason} | ({"error": str(error)} if error else {})
        logger.info("parity check skipped", extra=log)

    async def _check_all(self) -> None:
        while True:
            recording = await self._waiting.get()
            request_id.set(recording.request_id)
            try:
                await self._check(recording)
            except ServerFull as error:
                self._skip(recording, FULL, error)
            except Exception as error:
                self._skip(recording, FAILED, error)
            finally:
                self._drop(recording)

    async def _check(self, recording: _Recording) -> None:
        """Decode a recording again, and report the first difference."""
        request = SessionRequest(
            replace(recording.request.options, hint=""),
            DraftLength(Mode.TARGET_ONLY),
            recording.request.endpointing,
        )
        session = Session(
            request,
            self._transcriber,
            recording.target,
            None,
            self._metrics,
            resume_timeout_s=self._resume_timeout_s,
            same_weights=True,
        )
        await self._transcriber.check_room(recording.target)
        is_open = False
        async with aclosing(session.run(_pieces(recording.pcm or bytearray()))) as updates:
            async for segments in updates:
                if segments or not is_open:
                    await self._transcriber.check_room(
                        recording.target
                    )  # for a client, in addition to this session
                    is_open = True
        self._metrics.parity_checks.inc()
        tokens = _tokens(session)
        log: dict[str, object] = {"session": recording.session_id, "check": session.id}
        if (difference := first_difference(recording.tokens, tokens)) is None:
            logger.info("parity checked", extra=log)
            return
        self._metrics.parity_differences.inc()
        mode = recording.request.length.mode.value
        logger.error("transcript differs", extra=log | {"mode": mode} | difference._asdict())


class Difference(NamedTuple):
    """The first token that differs; ``None`` where a text has none."""

    window: int
    position: int
    written: int | None
    target_only: int | None


def first_difference(written: Tokens, target_only: Tokens) -> Difference | None:
    for window, (tokens, others) in enumerate(zip_longest(written, target_only, fillvalue=())):
        for position, (token, other) in enumerate(zip_longest(tokens, others)):
            if token != other:
                return Difference(window, position, token, other)
    return None


def _tokens(session: Session) -> Tokens:
    builder = session.builder
    return builder.finish().window_tokens if isinstance(builder, TranscriptBuilder) else ()


async def _pieces(pcm: bytearray) -> AsyncIterator[bytes]:
    for start in range(0, len(pcm), PIECE_BYTES):
        yield bytes(pcm[start : start + PIECE_BYTES])
