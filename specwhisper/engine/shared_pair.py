"""A pair of models in this process that any number of threads share.

One engine runs in a thread of its own; its forward passes serve all calls. A call submits its recordings and
builds its transcripts from the engine's events, in its own thread: an error or interrupt there ends no other
call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Lock
from weakref import WeakSet, finalize

from specwhisper.audio.speech import find_voice
from specwhisper.engine.engine_thread import EndingPool, EngineThread
from specwhisper.engine.pair_engine import PairEngine, PairEvent, PairSession
from specwhisper.errors import InvalidRequest
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import MAX_GAMMA, DraftLength
from specwhisper.transcription.live_windows import whisper_plan
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.windows import Plan, TokenLimit
from specwhisper.types import DEFAULT_MAX_NUM_BATCHED_TOKENS, Failed


@dataclass(frozen=True, slots=True)
class Prepared:
    """A recording and its options.

    Attributes
    ----------
    pcm : canonical PCM (s16le, 16 kHz, mono), whole or in pieces that are read as needed.
    """

    pcm: bytes | Iterable[bytes]
    options: DecodingOptions
    num_samples: int = 0


class SharedPair:
    """Transcribes for any number of threads at once; thread-safe.

    Calls share every forward pass, and the models' slots in the order of the calls.

    Parameters
    ----------
    max_new_tokens : limit of a window's tokens where the options name none.
    max_num_batched_tokens, plan : see :class:`specwhisper.engine.verifier.Verifier`.
    """

    def __init__(
        self,
        target: Model,
        draft: Model | None = None,
        max_new_tokens: TokenLimit | None = None,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        *,
        plan: Plan | None = None,
    ) -> None:
        self._target = target
        plan = plan or whisper_plan(target.vocabulary, target.tokenize, max_new_tokens, find_voice())
        self._start = partial(_RunningEngine, target, draft, max_num_batched_tokens, plan)
        self._lock = Lock()
        self._running: _RunningEngine | None = None
        self._was_forked_busy = False
        _pairs.add(self)

    def leave_to_parent(self) -> None:
        """Start again in a forked process, which lacks the parent's threads.

        If they were working, the models' library holds locks that are never released here, so later calls are
        refused.
        """
        self._lock = Lock()
        if self._running is not None:
            self._was_forked_busy |= self._running.is_busy
            self._ends_engine.detach()
            self._running.leave_to_parent()
            self._running = None

    def transcribe(
        self,
        recordings: Iterable[Prepared | Exception],
        length: DraftLength,
        *,
        max_sessions: int,
        watch: Callable[[int, TranscriptBuilder], None] = lambda index, builder: None,
    ) -> Iterator[tuple[int, Transcription | Exception]]:
        """Transcribe recordings concurrently; yield each with its index when it ends.

        Open recordings continue while the caller is busy. Closing the iterator frees their slots.

        Parameters
        ----------
        recordings : read in the caller's thread, at most one ahead of ``max_sessions``. An exception stands
            for a recording that cannot be read; it is yielded as the result.
        length : how far the draft runs ahead; mode ``target-only`` uses no draft.
        max_sessions : most of these recordings that hold a slot at once.
        watch : called, in the caller's thread, with a recording's index and its transcript so far, whenever
            that has changed. It must not change the transcript.

        Raises
        ------
        Exception
            if the options of one recording, and so of all, are refused. Other errors are yielded.
        """
        running = self._engine()
        events: SimpleQueue[tuple[str, PairEvent]] = SimpleQueue()
        sessions: dict[str, PairSession] = {}
        numbered = enumerate(recordings)
        ahead: tuple[int, Prepared | Exception] | None = None

        def begin(index: int, recording: Prepared) -> None:
            session = PairSession(
                *(running.new_id(), recording.pcm, length, recording.options, self._target.vocabulary),
                index=index,
            )
            sessions[session.id] = session  # first: an interrupt from here on closes it
            running.open(session, events)

        def next_ended() -> tuple[int, Transcription | Exception]:
            while True:
                session_id, event = events.get()
                session = sessions.get(session_id)
                if session is None:  # a fault of the engine is also sent to sessions that have just ended
                    continue
                result = session.observe(event)
                watch(session.index, session.builder)
                if result is not None:
                    del sessions[session_id]
                    running.close(session_id)
                    return session.index, result

        try:
            while True:
                ahead = ahead or next(numbered, None)
                index, recording = ahead or (0, None)
                if isinstance(recording, Exception):
                    ahead = None
                    yield index, recording
                elif recording is not None and len(sessions) < max_sessions:
                    ahead = None
                    begin(index, recording)
                elif sessions:
                    ended = next_ended()
                    if recording is not None:  # before the caller continues
                        ahead = None
                        begin(index, recording)
                    yield ended
                else:
                    return
        finally:
            for session_id in sessions:
                running.close(session_id)

    def _engine(self) -> _RunningEngine:
        """Return the engine, started by the first call of a process."""
        if self._was_forked_busy:
            raise InvalidRequest(
                "This process was forked while recordings were being transcribed, so models may hang in it: "
                "fork while none is, or start processes with 'spawn'."
            )
        with self._lock:
            if self._running is None:
                self._running = self._start()
                self._ends_engine = finalize(self, self._running.stop)
                self._ends_engine.atexit = False  # then its threads are waited for as well
            return self._running


class _RunningEngine:
    """The engine in its thread, and threads that encode, align and read."""

    def __init__(
        self,
        target: Model,
        draft: Model | None,
        max_num_batched_tokens: int,
        plan: Plan,
    ) -> None:
        self._ids = count()
        self._fault: Exception | None = None
        self._thread = EngineThread[PairEvent]("pair", self._on_fault)
        self._pools = [
            EndingPool(name, num_threads)
            for name, num_threads in (
                # Both models' encodings: side by side on the same cores, both together take longer.
                ("encoder", max(target.max_windows, (draft or target).max_windows)),
                ("aligner", 1),
                ("reader", target.num_slots),
            )
        ]
        encoder, aligner, reader = self._pools
        self._engine = PairEngine(
            target,
            draft,
            encoder=encoder,
            aligner=aligner,
            reader=reader,
            wake=self._thread.wake,
            max_width=MAX_GAMMA,  # no session's block is longer
            max_num_batched_tokens=max_num_batched_tokens,
            plan=plan,
        )
        self._thread.start(self._engine, call_soon=lambda deliver, *args: deliver(*args))

    def new_id(self) -> str:
        return str(next(self._ids))

    def open(self, session: PairSession, events: SimpleQueue[tuple[str, PairEvent]]) -> None:
        """Open a session, with a queue for its events; fail it without an engine."""

        def receive(event: PairEvent | Failed) -> None:
            events.put((session.id, event))
            if isinstance(event, Failed):  # now: a busy caller would leave it in every step
                self.close(session.id)

        self._thread.subscribe(session.id, receive)
        if not self._thread.post(partial(self._engine.open, session)):
            receive(Failed(self._fault or RuntimeError("The engine has been stopped.")))

    def close(self, session_id: str) -> None:
        """End a session, begun or not, and free its slots."""
        self._thread.unsubscribe(session_id)
        self._thread.post(partial(self._engine.close, session_id))

    def stop(self) -> None:
        """End all threads after their current work, and free what they hold."""
        self._thread.stop_soon()
        for pool in self._pools:
            pool.stop()

    @property
    def is_busy(self) -> bool:
        """Whether a session is open, or a thread still computes for a closed one."""
        has_sessions = self._thread.has_sessions or self._engine.num_sessions > 0
        return has_sessions or any(pool.busy.seconds > 0 for pool in self._pools)

    def leave_to_parent(self) -> None:
        """Fail the sessions, in a forked process."""
        self._fault = InvalidRequest("These results are the parent process's: begin a call in this one.")
        self._thread.leave_to_parent(self._fault)

    def _on_fault(self, fault: Exception) -> None:
        self._fault = fault
        self._thread.stop_soon()


_pairs: WeakSet[SharedPair] = WeakSet()


def _leave_all() -> None:
    for pair in list(_pairs):
        pair.leave_to_parent()


if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(after_in_child=_leave_all)
