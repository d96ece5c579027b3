"""The target's engine: transcribes many sessions at once, every pass shared by all that have something to do.

It owns no thread, socket or clock tick: messages go in by :meth:`Verifier.submit`, :meth:`Verifier.step`
runs one pass and gives the answers. One process calls it directly; the target server runs it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from time import perf_counter_ns

from specwhisper.audio.recording import Recording
from specwhisper.errors import InvalidAudio, InvalidCandidates, InvalidRequest, ServerFull
from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.ledger import Ledger
from specwhisper.transcription.windows import SequentialWindows
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    DecodingOptions,
    Failed,
    Finished,
    FromTarget,
    Limits,
    Mode,
    Resume,
    Timing,
    ToTarget,
    Window,
    WindowOpened,
)
from specwhisper.whisper.model import Model, Row, Scores


@dataclass(slots=True, eq=False)
class _Session:
    """One transcription: a slot, the audio so far and the window that is open."""

    id: str
    slot: int
    mode: Mode
    timestamps: bool
    recording: Recording
    windows: SequentialWindows
    resume: Resume | None = None
    window: Window | None = None
    ledger: Ledger = field(default_factory=Ledger)
    encoding: Future[int] | None = None
    encode_ns: int = 0
    candidates_received: int = 0
    may_go_alone: bool = False
    ready_ns: int = 0
    is_finished: bool = False

    @property
    def is_runnable(self) -> bool:
        """Whether a pass would append something now."""
        if self.window is None or self.encoding is not None:
            return False
        return bool(self.ledger.pending) or self.may_go_alone or self.mode.self_decodes


class Verifier:
    """Verifies candidates and decodes by itself where there are none.

    Parameters
    ----------
    executor : runs encodings; one worker, so that a slot's encodings keep their order.
    wake : called, from any thread, when an encoding is done and :meth:`step` has something to do.
    max_width : most candidates one session may put into one pass.
    """

    def __init__(
        self,
        model: Model,
        *,
        executor: Executor,
        wake: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        max_width: int = 16,
        max_new_tokens: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        self._executor = executor
        self._wake = wake
        self._max_width = max_width
        self._max_new_tokens = max_new_tokens
        self._free_slots = list(reversed(range(model.num_slots)))
        self._sessions: dict[str, _Session] = {}
        self._outbox: list[tuple[str, FromTarget]] = []

    @property
    def num_free_slots(self) -> int:
        """Sessions that can still be opened."""
        return len(self._free_slots)

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do anything now."""
        return bool(self._outbox) or any(
            s.is_runnable or self._can_advance(s) for s in self._sessions.values()
        )

    def open(self, session_id: str, mode: Mode, options: DecodingOptions) -> None:
        """Open a session; :class:`ServerFull` when every slot is taken."""
        if session_id in self._sessions:
            raise InvalidRequest(f"Session '{session_id}' exists already: choose another name.")
        windows = SequentialWindows(self._model.vocabulary, options, max_new_tokens=self._max_new_tokens)
        if not self._free_slots:
            raise ServerFull(
                f"The target holds its {self._model.num_slots} sessions already: try again later."
            )
        self._sessions[session_id] = _Session(
            id=session_id,
            slot=self._free_slots.pop(),
            mode=mode,
            timestamps=options.timestamps,
            recording=Recording(options.log_mel_max),
            windows=windows,
        )

    def close(self, session_id: str) -> None:
        """End a session and free its slot; of no effect when it is gone already."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if session.encoding is None or session.encoding.cancel() or session.encoding.done():
            self._free_slots.append(session.slot)
        else:  # the encoder writes into the slot: it is free when that is over
            session.encoding.add_done_callback(lambda _: self._free_slots.append(session.slot))

    def submit(self, session_id: str, message: ToTarget) -> None:
        """Take in a message; what is wrong with it ends its own session and no other."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        try:
            match message:
                case AudioChunk():
                    self._check_run_ahead(session, message)
                    session.recording.append(message)
                case Candidates():
                    self._offer(session, message)
                case Resume():
                    self._resume(session, message)
        except Exception as error:
            self._fail(session, error)

    def step(self) -> list[tuple[str, FromTarget]]:
        """Run one pass: collect, forward, accept, roll back, reply."""
        for session in list(self._sessions.values()):
            try:
                self._advance(session)
            except Exception as error:
                self._fail(session, error)
        batch = [session for session in self._sessions.values() if session.is_runnable]
        if batch:
            started_ns = perf_counter_ns()
            rows = [self._row(session) for session in batch]
            try:
                scores = self._model.score(rows)
            except Exception as error:
                for session in batch:
                    self._fail(session, error)
                scores = []
            forward_ns = perf_counter_ns() - started_ns
            for session, row, score in zip(batch, rows, scores, strict=False):
                timing = Timing(started_ns - session.ready_ns, forward_ns, session.encode_ns, len(batch))
                self._commit(session, row, score, timing)
        events, self._outbox = self._outbox, []
        return events

    def _row(self, session: _Session) -> Row:
        """Put together what the session feeds: what its slot lacks, then candidates."""
        window, ledger = _open_window(session), session.ledger
        room = window.max_new_tokens - len(ledger.committed) - 1  # the target's own token needs a place
        candidates = ledger.pending[: min(self._max_width, room)]
        sequence = [*window.prompt, *ledger.committed]
        return Row(
            slot=session.slot,
            tokens=sequence[self._model.length(session.slot) :] + candidates,
            num_candidates=len(candidates),
            generated=ledger.committed,
            timestamps=session.timestamps,
        )

    def _commit(self, session: _Session, row: Row, scores: Scores, timing: Timing) -> None:
        """Append what the target chose, forget the rejected keys and values, and tell the draft."""
        window, ledger = _open_window(session), session.ledger
        base = len(ledger.committed)
        verdict = accept(
            row.tokens[len(row.tokens) - row.num_candidates :],
            scores.tokens,
            end_of_text=self._model.vocabulary.end_of_text,
            budget=window.max_new_tokens - base,
        )
        ledger.append(verdict.tokens)
        self._model.rollback(session.slot, len(window.prompt) + base + verdict.num_accepted)
        num_tokens = len(verdict.tokens)
        session.may_go_alone = False
        session.encode_ns = 0
        session.ready_ns = perf_counter_ns()
        self._reply(
            session,
            replace(
                self._acknowledgement(session, window),
                base=base,
                tokens=verdict.tokens,
                log_probs=tuple(scores.log_probs[:num_tokens]),
                margins=tuple(scores.margins[:num_tokens]),
                num_verified=row.num_candidates,
                num_accepted=verdict.num_accepted,
                num_self_decoded=int(row.num_candidates == 0),
                is_final=verdict.is_final,
                timing=timing,
            ),
        )
        if verdict.is_final:
            session.windows.close(window, ledger.committed)
            session.window = None

    def _acknowledgement(self, session: _Session, window: Window) -> Commit:
        """Make a commit of nothing: it tells the draft where the target stands."""
        end = len(session.ledger.committed)
        return Commit(
            window_id=window.id,
            base=end,
            tokens=(),
            candidates_received=session.candidates_received,
            held=session.ledger.held,
            credit=end + self.limits.max_ahead_tokens,
        )

    def _can_advance(self, session: _Session) -> bool:
        if session.encoding is not None:
            return session.encoding.done()
        if session.window is not None or session.is_finished:
            return False
        return session.recording.window_is_ready(session.windows.next_frame)

    def _advance(self, session: _Session) -> None:
        """Note a finished encoding, open the next window, or finish."""
        if not self._can_advance(session):
            return
        if session.encoding is not None:
            session.encode_ns = session.encoding.result()
            session.encoding = None
            session.ready_ns = perf_counter_ns()
            return
        num_frames = session.recording.window_frames(session.windows.next_frame)
        if num_frames == 0:
            session.is_finished = True
            self._reply(session, Finished())
            return
        self._open_window(session, num_frames)

    def _open_window(self, session: _Session, num_frames: int) -> None:
        resume, session.resume = session.resume, None
        window = session.windows.open(num_frames) if resume is None else resume.window
        session.window = window
        session.ledger = Ledger(resume.committed if resume else (), max_pending=self.limits.max_ahead_tokens)
        session.candidates_received = 0
        session.recording.discard_before(window.start_sample)
        # What was heard before this window is all that another replica cannot know of its ceiling.
        ceiling = session.recording.log_mel_ceiling(window.start_frame, self._model.num_mel_bins)
        session.encoding = self._executor.submit(self._encode, session.slot, session.recording, window)
        session.encoding.add_done_callback(lambda _: self._wake())
        self._reply(session, WindowOpened(window, ceiling))

    def _encode(self, slot: int, recording: Recording, window: Window) -> int:
        """Encode a window into the slot, on the executor; give the nanoseconds it took."""
        started_ns = perf_counter_ns()
        self._model.encode(slot, recording, window.start_frame)
        return perf_counter_ns() - started_ns

    def _check_run_ahead(self, session: _Session, chunk: AudioChunk) -> None:
        """Bound what a session may have in memory."""
        start = session.windows.next_frame * HOP_SAMPLES
        end = chunk.start_sample + len(chunk.pcm) // 2
        if end - start > self.limits.max_ahead_samples:
            raise InvalidAudio(
                f"Audio up to sample {end} runs more than {self.limits.max_ahead_samples} samples ahead "
                f"of the open "
                f"window at {start}: wait for the next window."
            )

    def _offer(self, session: _Session, block: Candidates) -> None:
        """Queue candidates for the next pass; those that are of no use are answered at once."""
        _check_block(block, len(self._model.vocabulary), self.limits)
        if session.window is None or block.window_id != session.window.id:
            return
        session.candidates_received += 1
        ledger = session.ledger
        was_runnable = session.is_runnable
        if not block.tokens and block.base == len(ledger.committed):
            session.may_go_alone = True
        elif not ledger.offer(block.base, block.known_committed, block.tokens):
            self._reply(session, self._acknowledgement(session, session.window))
        if session.is_runnable and not was_runnable:
            session.ready_ns = perf_counter_ns()

    def _resume(self, session: _Session, resume: Resume) -> None:
        """Continue a window that another target opened."""
        window, size = resume.window, len(self._model.vocabulary)
        if session.window is not None or session.recording.received_samples:
            raise InvalidRequest(
                "A session can only be resumed before any audio: send it directly after the hello."
            )
        if not all(0 <= token < size for token in (*window.prompt, *resume.committed)):
            raise InvalidCandidates(f"A resumed token id is out of range: this target has {size} tokens.")
        room = self._model.vocabulary.max_length - len(window.prompt)
        if not 1 <= window.max_new_tokens <= room or len(resume.committed) >= window.max_new_tokens:
            raise InvalidRequest(
                f"A resumed window with a prompt of {len(window.prompt)} and {len(resume.committed)} "
                f"committed tokens, "
                f"{window.max_new_tokens} allowed, does not fit this target's "
                f"{self._model.vocabulary.max_length}."
            )
        session.resume = resume
        session.windows.resume(window)
        if resume.log_mel_ceiling is not None:
            session.recording.resume_ceiling(self._model.num_mel_bins, resume.log_mel_ceiling)

    def _fail(self, session: _Session, error: Exception) -> None:
        self._reply(session, Failed(error))
        self.close(session.id)

    def _reply(self, session: _Session, event: FromTarget) -> None:
        self._outbox.append((session.id, event))


def _open_window(session: _Session) -> Window:
    if session.window is None:
        raise RuntimeError(f"Session '{session.id}' has no open window.")
    return session.window


def _check_block(block: Candidates, vocabulary_size: int, limits: Limits) -> None:
    """Refuse what could never be verified, on the CPU and before any forward pass."""
    if len(block.tokens) > limits.max_block_tokens:
        raise InvalidCandidates(
            f"A block of {len(block.tokens)} candidates is too long: this target takes "
            f"{limits.max_block_tokens}."
        )
    for token in block.tokens:
        if not 0 <= token < vocabulary_size:
            raise InvalidCandidates(
                f"Token id {token} is out of range: this target has {vocabulary_size} tokens."
            )
