"""The recogniser's stream of one session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import NamedTuple

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.draft_state import Drafted
from specwhisper.speculation.controller import Choice
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.hints.feed import hint_at
from specwhisper.types import (
    MAX_HINT_TEXT_BYTES,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    AudioChunk,
    Commit,
    TimedHint,
    VoiceEvent,
    WindowOpened,
)
from specwhisper_draft_server.recognisers.protocol import Recognised, RecogniserStream

logger = logging.getLogger(__name__)

MAX_CALL_SAMPLES = SAMPLE_RATE  # of a call, so that sessions take turns
MAX_WAITING_SAMPLES = 4 * WINDOW_SAMPLES  # a target has no more audio ahead of its window


class Piece(NamedTuple):
    """Audio of a call: see :meth:`RecogniserStream.accept`."""

    start_sample: int
    pcm: bytes
    is_pause: bool
    is_last: bool

    @property
    def end_sample(self) -> int:
        """Sample after the last one."""
        return self.start_sample + len(self.pcm) // BYTES_PER_SAMPLE


class RecognisedStream:
    """The draft of one session; see :class:`DraftStream`.

    Audio goes to the recogniser as it arrives. Where the target is ahead, or may be, the audio before its
    window is skipped: a hint for it would come too late.

    Parameters
    ----------
    open_stream : begins a stream of the recogniser at a time; ``None`` if it cannot recognise this session.
    executor : runs the recogniser, for all sessions.
    on_drafted : called with each hint, in the event loop.
    on_failure : called when the recogniser fails.

    Attributes
    ----------
    has_failed : whether it returns nothing any more.
    """

    def __init__(
        self,
        session_id: str,
        open_stream: Callable[[float], RecogniserStream | None],
        executor: Executor,
        on_drafted: Callable[[Drafted], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.has_failed = False
        self._id = session_id
        self._open = open_stream
        self._is_idle = False  # it is not recognised
        self._executor = executor
        self._on_drafted = on_drafted
        self._on_failure = on_failure
        self._stream: RecogniserStream | None = None
        self._first_sample = self._next_sample = 0  # of the stream
        self._needed_from = 0  # first sample of the target's window, or one before it
        self._pieces: deque[Piece] = deque()
        self._has_pieces = asyncio.Event()

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None:
        """Send audio, or an event of the target."""
        match message:
            case AudioChunk() if not (self.has_failed or self._is_idle):
                is_pause = any(mark.event in (VoiceEvent.CUT, VoiceEvent.END) for mark in message.marks)
                piece = Piece(message.start_sample, message.pcm, is_pause, message.is_last)
                self._pieces.append(piece)
                self._needed_from = max(self._needed_from, piece.end_sample - MAX_WAITING_SAMPLES)
                self._has_pieces.set()
            case WindowOpened(window=window):
                self._needed_from = window.start_sample

    def fail(self, error: Exception) -> None:
        """End it: the session continues without."""
        if self.has_failed:
            return
        logger.error("draft failed", extra={"session": self._id}, exc_info=error)
        self.has_failed = True
        self._pieces.clear()
        self._on_failure()
        self._on_drafted(Drafted(None, DraftReport(choice=Choice(0, 0, "the recogniser has failed"))))

    async def last_report(self) -> DraftReport:
        """Return no figures: the target counts what it verifies."""
        return DraftReport()

    async def run(self) -> None:
        """Recognise audio as it arrives, until it fails or is cancelled."""
        try:
            await self._run()
        finally:
            with suppress(RuntimeError):  # of an executor that has ended
                self._executor.submit(self._close)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self.has_failed or self._is_idle):
            await self._has_pieces.wait()
            piece = self._next_piece()
            if piece is None:
                self._has_pieces.clear()
                continue
            try:
                hints = await loop.run_in_executor(self._executor, self._hints_of, piece)
            except Exception as error:
                self.fail(error)
                return
            for hint in () if self.has_failed else hints:
                self._on_drafted(Drafted(None, hint=hint))

    def _next_piece(self) -> Piece | None:
        """Return the audio of the next call: all that has arrived, up to a second."""
        while self._pieces and self._pieces[0].end_sample <= self._needed_from and len(self._pieces) > 1:
            self._pieces.popleft()
        if not self._pieces:
            return None
        first = last = self._pieces.popleft()
        pcm = bytearray(first.pcm)
        is_pause = first.is_pause
        while self._pieces and not is_pause and len(pcm) < MAX_CALL_SAMPLES * BYTES_PER_SAMPLE:
            last = self._pieces.popleft()
            pcm += last.pcm
            is_pause = last.is_pause
        return Piece(first.start_sample, bytes(pcm), is_pause, last.is_last)

    def _hints_of(self, piece: Piece) -> list[TimedHint]:
        """Return what the recogniser makes of audio.

        Raises
        ------
        RuntimeError : whatever it raises, and if it returns something else than texts with times.
        """
        try:
            return [
                hint_at(max(start_s, 0.0) + self._first_sample / SAMPLE_RATE, _start_of(text))
                for start_s, text in self._recognise(piece)
            ]
        # A future would never be done with StopIteration, and SystemExit would end the server.
        except (Exception, SystemExit) as error:
            raise RuntimeError(f"The recogniser has failed ({error!r}).") from error

    def _recognise(self, piece: Piece) -> Sequence[Recognised]:
        """Run the recogniser; another stream begins where audio was skipped."""
        if self._stream is None or piece.start_sample != self._next_sample:
            self._close()
            self._first_sample = piece.start_sample
            self._stream = self._open(piece.start_sample / SAMPLE_RATE)
        if self._stream is None:
            self._is_idle = True
            return ()
        self._next_sample = piece.end_sample
        return self._stream.accept(piece.pcm, is_pause=piece.is_pause, is_last=piece.is_last)

    def _close(self) -> None:
        """Close the recogniser's stream, if it can be closed."""
        stream, self._stream = self._stream, None
        try:
            getattr(stream, "close", lambda: None)()
        except Exception as error:
            logger.warning("recogniser stream not closed", extra={"session": self._id, "error": str(error)})


def _start_of(text: str) -> str:
    """Return as much of a text as a hint may have; the recogniser should have begun another one."""
    return text.encode()[:MAX_HINT_TEXT_BYTES].decode(errors="ignore")
