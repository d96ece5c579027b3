"""Target and draft in the caller's thread: repeatable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from specwhisper.engine.pair_engine import PairEngine, PairSession
from specwhisper.errors import InvalidRequest
from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.language_search import Voice
from specwhisper.transcription.live_windows import whisper_plan
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.windows import Plan, TokenLimit
from specwhisper.types import DEFAULT_MAX_NUM_BATCHED_TOKENS, DEFAULT_MAX_WIDTH, Candidates, Mode


class InlinePair:
    """Transcribes with a target and, optionally, a draft in the target's vocabulary.

    Everything runs in the caller's thread, encodings included, so that runs are repeatable. Each call has
    engines of its own over the models' slots, so two calls at once would mix their texts.

    Parameters
    ----------
    mode : ``one-process`` drafts a block, verifies it, and so on; the other modes behave as over a network
        without delay.
    gamma : see :class:`DraftLength`.
    max_sessions : recordings that are transcribed concurrently; by default one for each slot of the target.
    max_new_tokens, voice : see :func:`whisper_plan`; by default no speech is looked for, as in transformers.
    max_num_batched_tokens, plan : see :class:`Verifier`.
    edit_block : changes the draft's blocks on their way, as a network or a hostile draft might.
    """

    def __init__(
        self,
        target: Model,
        draft: Model | None = None,
        *,
        mode: Mode = Mode.ONE_PROCESS,
        gamma: int | None = 5,
        max_new_tokens: TokenLimit | None = None,
        max_sessions: int | None = None,
        max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
        plan: Plan | None = None,
        voice: Voice | None = None,
        edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
    ) -> None:
        self._target = target
        self._draft = draft
        mode = mode if draft is not None else Mode.TARGET_ONLY
        self._length = DraftLength(mode, gamma)
        self._max_sessions = target.num_slots if max_sessions is None else min(max_sessions, target.num_slots)
        if self._max_sessions < 1:
            raise InvalidRequest(f"max_sessions is {self._max_sessions}: it must be at least 1.")
        self._max_num_batched_tokens = max_num_batched_tokens
        self._plan = plan or whisper_plan(target.vocabulary, target.tokenize, max_new_tokens, voice)
        self._edit_block = edit_block

    def transcribe(
        self,
        recordings: Sequence[bytes | Iterable[bytes]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        *,
        watch: Callable[[int, TranscriptBuilder], None] = lambda index, builder: None,
    ) -> list[Transcription]:
        """Transcribe recordings concurrently; the next begins when one has ended.

        Parameters
        ----------
        recordings : canonical PCM (s16le, 16 kHz, mono), whole or in pieces, which are read as needed.
        options : for all, or for each.
        watch : called with a recording's index and its transcript so far, whenever that has changed.
        """
        if options is None or isinstance(options, DecodingOptions):
            options = [options or DecodingOptions()] * len(recordings)
        engine = PairEngine(
            self._target,
            self._draft,
            max_width=max(DEFAULT_MAX_WIDTH, self._length.gamma or 0),
            max_num_batched_tokens=self._max_num_batched_tokens,
            plan=self._plan,
            edit_block=self._edit_block,
        )
        sessions = [
            PairSession(
                str(index), recording, self._length, options[index], self._target.vocabulary, index=index
            )
            for index, recording in enumerate(recordings)
        ]
        results: dict[str, Transcription] = {}
        waiting = deque(sessions)
        while waiting or engine.num_sessions:
            while waiting and engine.num_sessions < self._max_sessions:
                engine.open(waiting.popleft())
            if not engine.has_work:
                raise RuntimeError("Draft and target wait for each other.")
            for session_id, event in engine.step():
                session = sessions[int(session_id)]
                result = session.observe(event)
                if isinstance(result, Exception):
                    raise result
                if result is not None:
                    results[session_id] = result
                watch(session.index, session.builder)
        return [results[session.id] for session in sessions]
