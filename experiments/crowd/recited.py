"""A model that takes a fixed time and almost no Python, and a draft for it that errs now and then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from experiments.common.models.scripted import ScriptedModel
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import WINDOW_SAMPLES, AudioChunk, Candidates, Commit, ToTarget, WindowOpened

NUM_WORDS = 2_000  # each a token, as a text of Whisper has many
END = NUM_WORDS
RECITED = Vocabulary(
    tokens=(
        *(f"Ġw{i}" for i in range(NUM_WORDS)),
        *("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"),
        *(f"<|{i * 0.02:.2f}|>" for i in range(1501)),
    ),
    end_of_text=END,
    start_of_transcript=END + 1,
    no_timestamps=END + 2,
    timestamp_begin=END + 3,
)
NUM_TOKENS = 400  # of a window's text
TEXT = (*Random(0).choices(range(NUM_WORDS), k=NUM_TOKENS), END)
ERRORS_PERCENT = 8  # of the draft's tokens
AHEAD = 12  # tokens by which the draft is ahead of what is committed


class Pass(NamedTuple):
    """A forward pass.

    Attributes
    ----------
    num_rows : sessions in it.
    num_tokens : that it committed.
    python_ns : CPU time of the engine's thread before it, since the end of the last one.
    gap_ns : wall time between the same two moments.
    """

    num_rows: int
    num_tokens: int
    python_ns: int
    gap_ns: int


class RecitedModel(ScriptedModel):
    """Writes the same text in every window; its forward pass sleeps, as if a device computed it."""

    def __init__(self, num_slots: int, *, pass_ms: float, vocabulary: Vocabulary = RECITED) -> None:
        super().__init__(num_slots, max_positions=vocabulary.max_length, vocabulary=vocabulary)
        self.passes: list[Pass] = []
        self._pass_s = pass_ms / 1_000
        self._ended_ns = self._ended_thread_ns = self._num_tokens = 0

    @property
    def thread_ns(self) -> int:
        """CPU time of the engine's thread up to the end of the last forward pass."""
        return self._ended_thread_ns

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot."""
        self._fed[slot] = []

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Sleep, then recite, and note what the engine took since the last time."""
        if self._ended_ns:
            python_ns = time.thread_time_ns() - self._ended_thread_ns
            gap_ns = time.perf_counter_ns() - self._ended_ns
            self.passes.append(Pass(len(rows), self._num_tokens, python_ns, gap_ns))
        self._num_tokens = 0
        time.sleep(self._pass_s)
        scores = [self._recite(row) for row in rows]
        self._ended_ns, self._ended_thread_ns = time.perf_counter_ns(), time.thread_time_ns()
        return scores

    def _recite(self, row: Row) -> Scores:
        self._fed[row.slot] += row.tokens
        begin = len(row.generated)
        tokens = list(TEXT[begin : begin + row.num_candidates + 1])
        tokens += [END] * (row.num_candidates + 1 - len(tokens))
        self._num_tokens += _num_right(row.candidates, tokens) + 1
        probe = ProbeResult(no_speech_prob=0.0, language_probs={}) if row.probe is not None else None
        return Scores(tokens, [-0.1] * len(tokens), [1.0] * len(tokens), probe)


class RecitedDraft:
    """The draft of one session: it answers each commit with a block, as in the mode ``full``.

    Parameters
    ----------
    number : of the session, on which the places of its errors depend.
    piece_samples : audio in a message.
    """

    def __init__(self, number: int, piece_samples: int) -> None:
        self._number = number
        self._piece_samples = piece_samples
        self._window_id = -1
        self._num_blocks = 0
        self._committed = 0
        self._sent: list[int] = []  # of the window, from its first position on

    def begin(self) -> list[ToTarget]:
        """Return the first messages."""
        return [*self._audio(0), *self._audio(WINDOW_SAMPLES)]

    def answer(self, event: object) -> list[ToTarget]:
        """Return the messages that follow an event of the target."""
        match event:
            case WindowOpened():
                window = event.window
                self._window_id, self._num_blocks, self._committed, self._sent = window.id, 0, 0, []
                return [*self._audio(window.start_sample + 2 * WINDOW_SAMPLES), *self._block()]
            case Commit() if event.window_id == self._window_id and event.tokens:
                self._commit(event.base, event.tokens)
                return [] if event.is_final else self._block()
        return []

    def _commit(self, base: int, tokens: Sequence[int]) -> None:
        self._committed = base + len(tokens)
        if self._sent[base : self._committed] != list(tokens)[: len(self._sent) - base]:
            del self._sent[base:]
        if len(self._sent) < self._committed:
            self._sent[base:] = tokens

    def _block(self) -> list[ToTarget]:
        base, end = len(self._sent), min(self._committed + AHEAD, len(TEXT))
        if end <= base:
            return []
        tokens = tuple(self._token(position) for position in range(base, end))
        self._sent += tokens
        self._num_blocks += 1
        return [Candidates(self._window_id, base, self._committed, tokens, self._num_blocks)]

    def _audio(self, start_sample: int) -> list[ToTarget]:
        """Return the silence of a window, in pieces."""
        num, end = self._piece_samples, start_sample + WINDOW_SAMPLES
        return [AudioChunk(i, bytes(2 * min(num, end - i))) for i in range(start_sample, end, num)]

    def _token(self, position: int) -> int:
        is_wrong = hash((self._number, self._window_id, position)) % 100 < ERRORS_PERCENT
        return (TEXT[position] + 1) % NUM_WORDS if is_wrong else TEXT[position]


def _num_right(candidates: Sequence[int], tokens: Sequence[int]) -> int:
    return next(
        (i for i, (ours, own) in enumerate(zip(candidates, tokens, strict=False)) if ours != own),
        len(candidates),
    )
