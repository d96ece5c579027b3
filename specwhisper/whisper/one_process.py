"""Draft and target in one process: the same two engines, wired to each other without a network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import FIRST_GAMMA, DraftLength
from specwhisper.transcription.transcript import Transcript, TranscriptBuilder
from specwhisper.transcription.windows import Windows
from specwhisper.types import (
    DEFAULT_MAX_WIDTH,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    Mode,
    WindowOpened,
)
from specwhisper.whisper.drafter import Drafter
from specwhisper.whisper.drafter_session import Drafted
from specwhisper.whisper.model import Model
from specwhisper.whisper.verifier import DEFAULT_MAX_PASS_TOKENS, Verifier

PIECE_SAMPLES = 4 * 16_000


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` and give its outcome as a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(slots=True, eq=False)
class _Run:
    """One recording on its way through both engines."""

    id: str
    place: int
    pieces: Iterator[bytes]
    builder: TranscriptBuilder
    max_ahead_samples: int
    window_start_sample: int = 0
    is_complete: bool = False

    @property
    def wants_audio(self) -> bool:
        """Whether the engines may have more audio; what lies ahead of the open window is bounded."""
        room = self.max_ahead_samples - (self.builder.num_samples - self.window_start_sample)
        return not self.is_complete and room >= PIECE_SAMPLES

    def next_chunk(self) -> AudioChunk:
        """Give the next piece; an empty one ends the audio."""
        pcm = next(self.pieces, b"")
        chunk = AudioChunk(self.builder.num_samples, pcm, is_last=not pcm)
        self.builder.num_samples += len(pcm) // BYTES_PER_SAMPLE
        self.is_complete = not pcm
        return chunk


class OneProcess:
    """Transcribes recordings with a target and, optionally, a draft that speaks the target's vocabulary.

    Parameters
    ----------
    mode : ``one-process`` drafts a block, verifies it, and so on; the other modes behave as over a network
        without delay.
    gamma, depth, is_adaptive, min_confidence : as :class:`DraftLength` has them; without a gamma each session
        chooses for itself.
    max_sessions : recordings that are transcribed side by side; by default as many as the target has slots.
    max_pass_tokens : as :class:`Verifier` takes it.
    runs_ahead : as :class:`Drafter` takes it.
    plan : as :class:`Verifier` takes it.
    edit_block : changes the draft's blocks on their way, as a network or a hostile draft might.
    """

    def __init__(
        self,
        target: Model,
        draft: Model | None = None,
        *,
        mode: Mode = Mode.ONE_PROCESS,
        gamma: int | None = FIRST_GAMMA,
        depth: int = 4,
        is_adaptive: bool = False,
        min_confidence: float | None = None,
        max_new_tokens: int | None = None,
        max_sessions: int | None = None,
        max_pass_tokens: int = DEFAULT_MAX_PASS_TOKENS,
        runs_ahead: bool = False,
        plan: Callable[[DecodingOptions], Windows] | None = None,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
    ) -> None:
        self._target = target
        self._draft = draft
        mode = mode if draft is not None else Mode.TARGET_ONLY
        length = DraftLength.of(mode, gamma, depth, min_confidence)
        self._length = replace(length, is_adaptive=is_adaptive or length.is_adaptive)
        self._max_new_tokens = max_new_tokens
        self._max_sessions = target.num_slots if max_sessions is None else min(max_sessions, target.num_slots)
        if self._max_sessions < 1:
            raise InvalidRequest(f"batch_size is {self._max_sessions}: it must be at least 1.")
        self._max_pass_tokens = max_pass_tokens
        self._runs_ahead = runs_ahead
        self._plan = plan
        self._edit_block = edit_block

    def transcribe(
        self,
        recordings: Sequence[bytes | Iterable[bytes]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        *,
        watch: Callable[[int, TranscriptBuilder], None] = lambda place, builder: None,
    ) -> list[Transcript]:
        """Transcribe side by side, as many as there are slots; the next begins when one has ended.

        Parameters
        ----------
        recordings : canonical PCM (s16le, 16 kHz, mono), whole or in pieces; of what comes in pieces no more
            is held than the open window needs.
        options : for all, or for each.
        watch : called with a recording's place and transcript so far whenever that has changed.
        """
        if options is None or isinstance(options, DecodingOptions):
            options = [options or DecodingOptions()] * len(recordings)
        executor = InlineExecutor()
        verifier = Verifier(
            self._target,
            executor=executor,
            max_width=max(DEFAULT_MAX_WIDTH, self._length.longest),
            max_pass_tokens=self._max_pass_tokens,
            max_new_tokens=self._max_new_tokens,
            plan=self._plan,
        )
        drafter = Drafter(self._draft or self._target, executor=executor, runs_ahead=self._runs_ahead)
        waiting = deque(
            _Run(
                id=str(place),
                place=place,
                pieces=_pieces(recording),
                builder=TranscriptBuilder(self._target.vocabulary),
                max_ahead_samples=verifier.limits.max_ahead_samples,
            )
            for place, recording in enumerate(recordings)
        )
        transcripts: dict[int, Transcript] = {}
        runs: dict[str, _Run] = {}
        drafts = self._length.mode.drafts
        while waiting or runs:
            while waiting and len(runs) < self._max_sessions and (drafter.num_free_slots or not drafts):
                run = waiting.popleft()
                verifier.open(run.id, self._length.mode, options[run.place])
                if drafts:
                    credit = verifier.limits.max_ahead_tokens
                    drafter.open(run.id, self._length, options[run.place], max_ahead_tokens=credit)
                runs[run.id] = run
            for run in runs.values():
                while run.wants_audio:
                    chunk = run.next_chunk()
                    verifier.submit(run.id, chunk)
                    drafter.submit(run.id, chunk)
            while drafter.has_work:  # a draft is cheap: it goes as far as it may before each pass
                for session, drafted in drafter.step():
                    self._propose(runs[session], drafted, verifier)
            has_worked = verifier.has_work
            for session, event in verifier.step():
                run = runs[session]
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Finished):
                    run.builder.statistics.observe(drafter.report(session))
                    transcripts[run.place] = run.builder.finish()
                    verifier.close(session)
                    drafter.close(session)
                    del runs[session]
                elif isinstance(event, WindowOpened | Commit):
                    if isinstance(event, WindowOpened):
                        run.window_start_sample = event.window.start_sample
                    run.builder.observe(event)
                    drafter.submit(session, event)
                watch(run.place, run.builder)
            if runs and not has_worked and not (drafter.has_work or verifier.has_work):
                raise RuntimeError(f"Draft and target wait for each other in session {min(runs)}.")
        return [transcripts[place] for place in range(len(recordings))]

    def _propose(self, run: _Run, drafted: Drafted | Failed, verifier: Verifier) -> None:
        if isinstance(drafted, Failed):
            raise drafted.error
        run.builder.statistics.observe(drafted.report)
        if drafted.candidates is None:
            return
        run.builder.observe(drafted.candidates)
        for block in self._edit_block(drafted.candidates):
            verifier.submit(run.id, block)


def _pieces(recording: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """Cut a recording into pieces of at most :data:`PIECE_SAMPLES`, none of them empty."""
    for pcm in (recording,) if isinstance(recording, bytes) else recording:
        for start in range(0, len(pcm), PIECE_SAMPLES * BYTES_PER_SAMPLE):
            yield pcm[start : start + PIECE_SAMPLES * BYTES_PER_SAMPLE]
