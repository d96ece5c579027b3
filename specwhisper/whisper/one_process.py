"""Draft and target in one process: the same two engines, wired to each other without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcript import Transcript, TranscriptBuilder
from specwhisper.types import (
    AudioChunk,
    Candidates,
    Commit,
    DecodingOptions,
    Failed,
    Finished,
    Limits,
    Mode,
    WindowOpened,
)
from specwhisper.whisper.drafter import Drafter
from specwhisper.whisper.model import Model
from specwhisper.whisper.verifier import Verifier


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


class OneProcess:
    """Transcribes recordings with a target and, optionally, a draft that speaks the target's vocabulary.

    Parameters
    ----------
    mode : ``one-process`` drafts a block, verifies it, and so on; the other modes behave as over a network
        without delay.
    edit_block : changes the draft's blocks on their way, as a network or a hostile draft might.
    """

    def __init__(
        self,
        target: Model,
        draft: Model | None = None,
        *,
        mode: Mode = Mode.ONE_PROCESS,
        gamma: int = 5,
        depth: int = 4,
        max_new_tokens: int | None = None,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
    ) -> None:
        self._target = target
        self._draft = draft
        self._length = DraftLength(mode if draft is not None else Mode.TARGET_ONLY, gamma, depth)
        self._max_new_tokens = max_new_tokens
        self._edit_block = edit_block

    def transcribe(
        self, recordings: Sequence[bytes], options: DecodingOptions | None = None
    ) -> list[Transcript]:
        """Transcribe canonical recordings (s16le, 16 kHz, mono) side by side, as many as there are slots."""
        transcripts: list[Transcript] = []
        num_slots = min(m.num_slots for m in (self._target, self._draft) if m is not None)
        for start in range(0, len(recordings), num_slots):
            transcripts += self._transcribe(
                recordings[start : start + num_slots], options or DecodingOptions()
            )
        return transcripts

    def _transcribe(self, recordings: Sequence[bytes], options: DecodingOptions) -> list[Transcript]:
        executor = InlineExecutor()
        # The recordings are in memory already, so there is nothing to hold back.
        longest = max(len(pcm) // BYTES_PER_SAMPLE for pcm in recordings)
        limits = Limits(max_ahead_samples=max(Limits().max_ahead_samples, longest))
        verifier = Verifier(
            self._target, executor=executor, limits=limits, max_new_tokens=self._max_new_tokens
        )
        drafter = Drafter(self._draft or self._target, executor=executor)
        builders = {}
        for i, pcm in enumerate(recordings):
            session = str(i)
            builders[session] = TranscriptBuilder(self._target.vocabulary)
            audio = AudioChunk(0, pcm, is_last=True)
            verifier.open(session, self._length.mode, options)
            verifier.submit(session, audio)
            if self._length.mode.drafts:
                credit = verifier.limits.max_ahead_tokens
                drafter.open(session, self._length, options, max_ahead_tokens=credit)
                drafter.submit(session, audio)
        unfinished = set(builders)
        while unfinished:
            while drafter.has_work:  # a draft is cheap: it goes as far as it may before each pass
                for session, drafted in drafter.step():
                    if isinstance(drafted, Failed):
                        raise drafted.error
                    builders[session].observe(drafted.candidates)
                    builders[session].statistics.draft_ns += drafted.forward_ns
                    for block in self._edit_block(drafted.candidates):
                        verifier.submit(session, block)
            for session, event in verifier.step():
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Finished):
                    unfinished.discard(session)
                    drafter.close(session)
                elif isinstance(event, WindowOpened | Commit):
                    builders[session].observe(event)
                    drafter.submit(session, event)
            if unfinished and not (drafter.has_work or verifier.has_work):
                raise RuntimeError(f"Draft and target wait for each other in session {min(unfinished)}.")
        return [builder.finish() for builder in builders.values()]
