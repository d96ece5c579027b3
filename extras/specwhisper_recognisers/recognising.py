"""Recognise the audio of all sessions in one thread."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.engine_thread import EndingPool
from specwhisper.engine.process import leave_process
from specwhisper.engine.watchdog import ENDS_WITHIN_S, Watchdog
from specwhisper.errors import DeviceFault, check_between
from specwhisper.options import DecodingOptions, Task
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.tasks import running
from specwhisper.transcription.hints import hint_at
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
from specwhisper_draft_server.transcriber import TargetDescription
from specwhisper_recognisers.protocol import Recognised, Recogniser, RecogniserStream
from specwhisper_recognisers.settings import check_mode

logger = logging.getLogger(__name__)

MIN_PIECE_S, MAX_PIECE_S = 0.01, 30.0
MAX_PIECE_SAMPLES = SAMPLE_RATE  # if it asks for no length, so that sessions take turns
MAX_WAITING_SAMPLES = 4 * WINDOW_SAMPLES  # a target has no more audio ahead of its window


class RecogniserDrafting:
    """A recogniser that drafts for all sessions; see :class:`Drafting`.

    A call of the recogniser may take ``timeout_s``.
    """

    check_mode = staticmethod(check_mode)
    num_mel_bins = None
    placement = None  # it drafts for all targets

    def __init__(
        self,
        recogniser: Recogniser,
        *,
        timeout_s: float = 15.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = recogniser.name
        self._recogniser = recogniser
        if (piece_s := getattr(recogniser, "piece_s", None)) is not None:
            check_between("The recogniser's piece_s", piece_s, MIN_PIECE_S, MAX_PIECE_S)
        self._on_failure = on_failure
        self._executor = EndingPool("recogniser")
        self._sessions: set[RecognisedStream] = set()
        self.watchdog = Watchdog(
            lambda: self._executor.busy.seconds,
            timeout_s,
            lambda: TimeoutError(f"The recogniser has not answered within {timeout_s:g} s."),
            on_hang=self._fail_sessions,
            on_return=lambda: logger.info("draft engine answers again"),
        )

    @asynccontextmanager
    async def session(
        self,
        session_id: str,
        target: TargetDescription,
        length: DraftLength,
        options: DecodingOptions,
        *,
        receive: Callable[[Drafted], None],
    ) -> AsyncIterator[RecognisedStream]:
        """Open a session; ``receive`` is called with its hints, in the event loop."""
        self.watchdog.start()
        stream = RecognisedStream(
            session_id, self._recogniser, options, self._executor, receive, self._on_failure
        )
        self._sessions.add(stream)
        try:
            async with running(stream.run()):
                if self.watchdog.hangs:
                    stream.fail(self.watchdog.error())
                yield stream
        finally:
            self._sessions.discard(stream)

    async def stop(self) -> None:
        self.watchdog.stop()
        try:
            await self._executor.end()
        except TimeoutError:
            leave_process(DeviceFault(f"The recogniser has not ended within {ENDS_WITHIN_S:g} s."))

    def _fail_sessions(self) -> None:
        error = self.watchdog.error()
        logger.error("draft engine hangs", extra={"error": str(error)})
        for session in self._sessions:
            session.fail(error)


class RecognisedStream:
    """The draft of one session; see :class:`DraftStream`.

    Audio goes to the recogniser as it arrives. What the target has done, or may have, is skipped: text of it
    would come too late. That is the audio before its window, and live audio whose text is final. So a slow
    recogniser does less, and the target's own balance for hints ends what worthless text costs.
    """

    def __init__(
        self,
        session_id: str,
        recogniser: Recogniser,
        options: DecodingOptions,
        executor: Executor,
        on_drafted: Callable[[Drafted], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.has_failed = False
        self._id = session_id
        self._is_live = options.live is not None  # its text is shown, too
        self._open = partial(recogniser.open, options.language, is_live=self._is_live)
        # Nothing is recognised. A translation has other words than the audio.
        self._is_idle = options.task is Task.TRANSLATE
        self._executor = executor
        self._on_drafted = on_drafted
        self._on_failure = on_failure
        self._stream: RecogniserStream | None = None
        self._report = DraftReport()  # its time since the last text
        self._first_sample = self._next_sample = 0  # where the stream begins, and where its audio ends
        self._window_end = 0  # sample after the target's window
        self._done_to = 0  # sample before which the target needs no text
        self._waiting = WaitingAudio(getattr(recogniser, "piece_s", None))
        self._has_news = asyncio.Event()

    def send(self, message: AudioChunk | WindowOpened | Commit) -> None:
        if self.has_failed or self._is_idle:
            return
        match message:
            case AudioChunk():
                self._waiting.append(message)
                self._skip_to(self._waiting.end_sample - MAX_WAITING_SAMPLES)
            case WindowOpened(window=window):
                self._window_end = window.end_sample
                if not self._is_live:  # that of live audio begins with final text
                    self._skip_to(window.start_sample)
            case Commit() if message.piece is not None:
                self._skip_to(self._window_end)
        self._has_news.set()

    def _skip_to(self, sample: int) -> None:
        self._done_to = max(self._done_to, sample)  # audio before it may still arrive
        self._waiting.skip_to(self._done_to)

    def fail(self, error: Exception) -> None:
        """End it: the session continues without."""
        if self.has_failed:
            return
        logger.error("draft failed", extra={"session": self._id}, exc_info=error)
        self.has_failed = True
        self._waiting.skip_to(self._waiting.end_sample)
        self._on_failure()
        self._on_drafted(Drafted(None, DraftReport(note="the recogniser has failed")))

    def _take_report(self) -> DraftReport:
        report, self._report = self._report, DraftReport()
        return report

    async def last_report(self) -> DraftReport:
        """Return its time since the last text; the target counts what it verifies."""
        return self._take_report()

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            with suppress(RuntimeError):  # the executor has ended
                self._executor.submit(self._close)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self.has_failed or self._is_idle):
            await self._has_news.wait()
            if (piece := self._waiting.take()) is None:
                self._has_news.clear()
                continue
            waiting_s = self._waiting.num_samples / SAMPLE_RATE
            try:
                hints, took_ns = await loop.run_in_executor(self._executor, self._hints_of, piece, waiting_s)
            except Exception as error:
                self.fail(error)
                return
            self._report.forward_ns += took_ns
            for hint in () if self.has_failed else hints:
                self._on_drafted(Drafted(None, self._take_report(), hint=hint))

    def _hints_of(self, piece: Piece, waiting_s: float) -> tuple[list[TimedHint], int]:
        """Return the recogniser's hints for audio, and how long they took; any failure is a RuntimeError."""
        began_ns = perf_counter_ns()
        try:
            hints = [
                hint_at(max(start_s, 0.0) + self._first_sample / SAMPLE_RATE, _start_of(text))
                for start_s, text in self._recognise(piece, waiting_s)
            ]
        # A future would never be done with StopIteration, and SystemExit would end the server.
        except (Exception, SystemExit) as error:
            raise RuntimeError(f"The recogniser has failed ({error!r}).") from error
        return hints, perf_counter_ns() - began_ns

    def _recognise(self, piece: Piece, waiting_s: float) -> Sequence[Recognised]:
        """Run the recogniser; another stream begins where audio was skipped."""
        if self._stream is None or piece.start_sample != self._next_sample:
            self._close()
            if not piece.pcm:  # the audio before the pause or the end was skipped
                return ()
            self._first_sample = piece.start_sample
            self._stream = self._open(piece.start_sample / SAMPLE_RATE)
        if self._stream is None:
            self._is_idle = True
            return ()
        self._next_sample = piece.end_sample
        return self._stream.accept(
            piece.pcm, is_pause=piece.is_pause, is_last=piece.is_last, waiting_s=waiting_s
        )

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        try:
            getattr(stream, "close", lambda: None)()
        except Exception as error:
            logger.warning("recogniser stream not closed", extra={"session": self._id, "error": str(error)})


def _start_of(text: str) -> str:
    """Return as much of a text as a hint may have; the recogniser should have begun another one."""
    return text.encode()[:MAX_HINT_TEXT_BYTES].decode(errors="ignore")


class Piece(NamedTuple):
    """Audio of a call: see :meth:`RecogniserStream.accept`."""

    start_sample: int
    pcm: bytes
    is_pause: bool
    is_last: bool

    @property
    def num_samples(self) -> int:
        return len(self.pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.num_samples


class WaitingAudio:
    """Audio that a recogniser is still to take.

    Parameters
    ----------
    piece_s : length of a piece. It is shorter at a pause and at the end of the audio. ``None`` gives
        whatever has arrived, up to a second.

    Attributes
    ----------
    start_sample : its first sample in the stream.
    """

    def __init__(self, piece_s: float | None = None) -> None:
        self.start_sample = 0
        self._is_gathered = piece_s is not None
        self._piece_samples = MAX_PIECE_SAMPLES if piece_s is None else round(piece_s * SAMPLE_RATE)
        self._pcm = bytearray()
        self._pauses: deque[int] = deque()  # samples at which speech pauses, or at which that is known
        self._has_ended = False

    @property
    def num_samples(self) -> int:
        return len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        return self.start_sample + self.num_samples

    def append(self, chunk: AudioChunk) -> None:
        if not self._pcm:
            self.start_sample = chunk.start_sample
        self._pcm += chunk.pcm
        self._has_ended = chunk.is_last
        for mark in chunk.marks:
            if mark.event in (VoiceEvent.CUT, VoiceEvent.END):
                is_here = self.start_sample < mark.sample < self.end_sample
                pause = mark.sample if is_here else self.end_sample  # it is known late
                self._pauses.append(max(pause, *self._pauses, 0))

    def skip_to(self, sample: int) -> None:
        num_skipped = min(sample - self.start_sample, self.num_samples)
        if num_skipped > 0:
            self._drop(num_skipped)
            while self._pauses and self._pauses[0] <= self.start_sample:
                self._pauses.popleft()

    def take(self) -> Piece | None:
        """Return the next piece, if there is enough audio for one."""
        start, end = self.start_sample, self.start_sample + self._piece_samples
        is_pause = bool(self._pauses) and self._pauses[0] <= end
        if is_pause:
            end = self._pauses[0]
            while self._pauses and self._pauses[0] == end:
                self._pauses.popleft()
        elif self.end_sample < end:
            if not self._has_ended and (self._is_gathered or not self._pcm):
                return None
            end = self.end_sample
        is_last = self._has_ended and end == self.end_sample and not self._pauses
        if is_last:
            self._has_ended = False  # it is said once
        pcm = bytes(self._pcm[: (end - start) * BYTES_PER_SAMPLE])
        self._drop(end - start)
        return Piece(start, pcm, is_pause, is_last)

    def _drop(self, num_samples: int) -> None:
        del self._pcm[: num_samples * BYTES_PER_SAMPLE]
        self.start_sample += num_samples
