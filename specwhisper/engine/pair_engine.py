"""Target and draft as one engine: blocks go to the target, commits go back.

Like the two engines in it, it has ``open``, ``step`` and ``close``, and owns no thread.
:mod:`specwhisper.engine.shared_pair` runs it in a thread that all callers share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.encodings import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import Plan
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    WindowOpened,
)

PIECE_SAMPLES = 4 * 16_000  # a chunk of a recording


@dataclass(frozen=True, slots=True)
class Refused:
    """The options of a session are refused, which ends its whole call."""

    error: Exception


PairEvent = Drafted | WindowOpened | Commit | Finished | Failed | Refused


class PairSession:
    """A recording that a pair transcribes.

    The engine reads its audio. The caller builds its transcript from the engine's events, maybe in another
    thread.

    Parameters
    ----------
    recording : canonical PCM (s16le, 16 kHz, mono), whole or in pieces; empty pieces are skipped.
    """

    def __init__(
        self,
        session_id: str,
        recording: bytes | Iterable[bytes],
        length: DraftLength,
        options: DecodingOptions,
        vocabulary: Vocabulary,
        *,
        index: int = 0,
    ) -> None:
        self.id, self.index = session_id, index
        self.length, self.options = length, options
        # The engine's part.
        self._pieces = _pieces(recording)
        self._is_read = False
        self.num_samples = self.window_start_sample = 0
        self.reading: Future[AudioChunk] | None = None
        # The caller's part.
        self.builder = TranscriptBuilder(vocabulary)

    def wants_audio(self, max_ahead_samples: int) -> bool:
        """Return whether one more piece may be read ahead of the open window."""
        room = max_ahead_samples - (self.num_samples - self.window_start_sample)
        return not self._is_read and room >= PIECE_SAMPLES

    def next_chunk(self) -> AudioChunk:
        """Read the next piece; an empty chunk ends the audio."""
        pcm = next(self._pieces, b"")
        chunk = AudioChunk(self.num_samples, pcm, is_last=not pcm)
        self.num_samples += len(pcm) // BYTES_PER_SAMPLE
        self._is_read = not pcm
        return chunk

    def observe(self, event: PairEvent) -> Transcription | Exception | None:
        """Follow an event; return the result, or the recording's error, with the last one.

        Raise the error of refused options.
        """
        self.builder.num_samples = self.num_samples
        match event:
            case Drafted():
                self.builder.statistics.observe(event.report)
                if event.candidates is not None:
                    self.builder.observe(event.candidates)
            case Finished():
                return self.builder.finish()
            case Failed(error=error):
                return error
            case Refused(error=error):
                raise error
            case _:
                self.builder.observe(event)
        return None


class PairEngine:
    """Runs a target and, if there is one, a draft in the target's vocabulary.

    Parameters
    ----------
    encoder, aligner, reader : run encodings, begun in order; align words; read recordings. By default all of
        it happens at once, in the caller's thread.
    wake : called, from any thread, when an encoding, an alignment or a piece of audio is done.
    max_width, max_num_batched_tokens, plan : see :class:`Verifier`.
    edit_block : changes the draft's blocks on their way, as a network or a hostile draft might.
    """

    def __init__(
        self,
        target: Model,
        draft: Model | None,
        *,
        encoder: Executor | None = None,
        aligner: Executor | None = None,
        reader: Executor | None = None,
        wake: Callable[[], None] = lambda: None,
        max_width: int = DEFAULT_MAX_WIDTH,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        plan: Plan | None = None,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
    ) -> None:
        self._verifier = Verifier(
            target,
            executor=encoder,
            aligner=aligner,
            wake=wake,
            max_width=max_width,
            max_num_batched_tokens=max_num_batched_tokens,
            plan=plan,
        )
        self._drafter = Drafter(draft or target, executor=encoder, wake=wake)
        self._reader = reader or InlineExecutor()
        self._wake = wake
        self._edit_block = edit_block
        self._waiting: deque[PairSession] = deque()
        self._sessions: dict[str, PairSession] = {}
        self._events: list[tuple[str, PairEvent]] = []

    @property
    def num_sessions(self) -> int:
        """Sessions that hold a slot or wait for one."""
        return len(self._waiting) + len(self._sessions)

    @property
    def has_work(self) -> bool:
        return bool(
            (self._waiting and self._has_room(self._waiting[0]))
            or any(self._has_audio(session) for session in self._sessions.values())
            or self._drafter.has_work
            or self._verifier.has_work
        )

    @property
    def wake_after_s(self) -> float:
        return self._verifier.wake_after_s

    def open(self, session: PairSession) -> None:
        """Open a session as soon as there are slots for it, in the order of the calls."""
        self._waiting.append(session)

    def close(self, session_id: str) -> None:
        """End a session and free its slots; without effect when it has ended already."""
        self._waiting = deque(session for session in self._waiting if session.id != session_id)
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.reading is not None:
            session.reading.cancel()
        self._verifier.close(session_id)
        self._drafter.close(session_id)

    def step(self) -> list[tuple[str, PairEvent]]:
        """Draft as far as possible, run one forward pass, return all events."""
        while self._waiting and self._has_room(self._waiting[0]):
            self._admit(self._waiting.popleft())
        for session in list(self._sessions.values()):
            self._read(session)
        # A draft step takes little time: the target's forward pass waits for all of them.
        while self._drafter.has_work:
            for session_id, drafted in self._drafter.step():
                self._propose(session_id, drafted)
        for session_id, event in self._verifier.step():
            self._pass_on(session_id, event)
        events, self._events = self._events, []
        return events

    def _has_room(self, session: PairSession) -> bool:
        if not self._verifier.num_free_slots:
            return False
        return self._drafter.num_free_slots > 0 or not session.length.mode.drafts

    def _admit(self, session: PairSession) -> None:
        self._sessions[session.id] = session
        try:
            self._verifier.open(session.id, session.length.mode, session.options)
            if session.length.mode.drafts:
                credit = self._verifier.limits.max_ahead_tokens
                self._drafter.open(session.id, session.length, session.options, max_ahead_tokens=credit)
        except Exception as error:
            self._end(session.id, Refused(error))

    def _has_audio(self, session: PairSession) -> bool:
        """Return whether a piece has been read, or the next one should be."""
        if session.reading is not None:
            return session.reading.done()
        return session.wants_audio(self._verifier.limits.max_ahead_samples)

    def _read(self, session: PairSession) -> None:
        """Submit the piece that was read, and begin to read the next one."""
        while self._has_audio(session):
            if session.reading is None:
                session.reading = self._reader.submit(session.next_chunk)
                session.reading.add_done_callback(lambda _: self._wake())
                continue
            try:
                chunk = session.reading.result()
            except Exception as error:
                self._end(session.id, Failed(error))
                return
            session.reading = None
            self._verifier.submit(session.id, chunk)
            self._drafter.submit(session.id, chunk)

    def _propose(self, session_id: str, drafted: Drafted | Failed) -> None:
        if isinstance(drafted, Failed):
            self._end(session_id, drafted)
            return
        self._events.append((session_id, drafted))
        if drafted.candidates is not None:
            for block in self._edit_block(drafted.candidates):
                self._verifier.submit(session_id, block)

    def _pass_on(self, session_id: str, event: WindowOpened | Commit | Finished | Failed) -> None:
        """Return an event of the target, and submit it to the draft."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        if isinstance(event, Finished):
            self._events.append((session_id, Drafted(None, self._drafter.report(session_id))))
        if isinstance(event, Finished | Failed):
            self._end(session_id, event)
            return
        if isinstance(event, WindowOpened):
            session.window_start_sample = event.window.start_sample
        self._drafter.submit(session_id, event)
        self._events.append((session_id, event))

    def _end(self, session_id: str, event: Finished | Failed | Refused) -> None:
        self._events.append((session_id, event))
        self.close(session_id)


def _pieces(recording: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """Cut a recording into pieces of at most :data:`PIECE_SAMPLES`, none empty."""
    for pcm in (recording,) if isinstance(recording, bytes) else recording:
        for start in range(0, len(pcm), PIECE_SAMPLES * BYTES_PER_SAMPLE):
            yield pcm[start : start + PIECE_SAMPLES * BYTES_PER_SAMPLE]
