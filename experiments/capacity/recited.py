"""A target that recites: its forward pass takes a fixed time and almost no Python; and a draft for it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from experiments.common.models.scripted import ScriptedModel, scripted_checkpoint
from experiments.common.replay.trace import num_equal
from experiments.common.servers.forked import Probes
from specwhisper.audio.recording import Recording
from specwhisper.engine.process import prepare_process
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.rpc.serving import serve
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import WINDOW_SAMPLES, AudioChunk, Candidates, Commit, Limits, ToTarget, WindowOpened
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import running_service, services_of

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
NUM_TOKENS = 400  # length of a window's text
TEXT = (*Random(0).choices(range(NUM_WORDS), k=NUM_TOKENS), END)
ERRORS_PERCENT = 8  # wrong tokens of the draft
AHEAD = 12  # tokens by which the draft is ahead of what is committed
MAX_NUM_BATCHED_TOKENS = 4096  # every session takes part in every forward pass
PROBES = ("num_passes", "num_rows", "num_tokens", "python_ns", "p95_python_ns", "process_ns", "engine_ns")


class Pass(NamedTuple):
    """A forward pass.

    Attributes
    ----------
    num_rows : sessions in it.
    num_tokens : that it committed.
    python_ns : processor time of the engine's thread before it, since the end of the last one.
    """

    num_rows: int
    num_tokens: int
    python_ns: int


class RecitedModel(ScriptedModel):
    """Writes the same text in every window; its forward pass sleeps, as if a device computed it.

    Attributes
    ----------
    passes : since the list was last replaced.
    thread_ns : processor time of the engine's thread up to the end of the last forward pass.
    """

    def __init__(self, num_slots: int, *, pass_ms: float) -> None:
        super().__init__(num_slots, max_positions=RECITED.max_length, vocabulary=RECITED)
        self.passes: list[Pass] = []
        self.thread_ns = 0
        self._pass_s = pass_ms / 1_000
        self._num_tokens = 0

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._fed[slot] = []

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        if self.thread_ns:
            python_ns = time.thread_time_ns() - self.thread_ns
            self.passes.append(Pass(len(rows), self._num_tokens, python_ns))
        self._num_tokens = 0
        time.sleep(self._pass_s)
        scores = [self._recite(row) for row in rows]
        self.thread_ns = time.thread_time_ns()
        return scores

    def _recite(self, row: Row) -> Scores:
        self._fed[row.slot] += row.tokens
        begin = len(row.generated)
        tokens = list(TEXT[begin : begin + row.num_candidates + 1])
        tokens += [END] * (row.num_candidates + 1 - len(tokens))
        self._num_tokens += num_equal(row.candidates, tokens) + 1
        probe = ProbeResult(no_speech_prob=0.0, language_probs={}) if row.probe is not None else None
        return Scores(tokens, [-0.1] * len(tokens), [1.0] * len(tokens), probe)


class RecitedDraft:
    """The draft of one session: it answers each commit with a block, as in the mode ``full``.

    Parameters
    ----------
    number : the session's; the places of the draft's errors depend on it.
    piece_samples : audio in a message.
    """

    def __init__(self, number: int, piece_samples: int) -> None:
        self._number = number
        self._piece_samples = piece_samples
        self._window_id = -1
        self._num_blocks = self._num_sent = self._num_committed = 0

    def begin(self) -> list[ToTarget]:
        return [*self._audio(0), *self._audio(WINDOW_SAMPLES)]

    def answer(self, event: object) -> list[ToTarget]:
        """Return the messages that follow an event of the target."""
        match event:
            case WindowOpened():
                self._window_id = event.window.id
                self._num_blocks = self._num_sent = self._num_committed = 0
                return [*self._audio(event.window.start_sample + 2 * WINDOW_SAMPLES), *self._block()]
            case Commit() if event.window_id == self._window_id and event.tokens:
                self._num_committed = event.base + len(event.tokens)
                judged = range(event.base, min(self._num_committed, self._num_sent))
                if any(map(self._is_wrong, judged)):  # what was sent after it is void
                    self._num_sent = self._num_committed
                self._num_sent = max(self._num_sent, self._num_committed)
                return [] if event.is_final else self._block()
        return []

    def _block(self) -> list[ToTarget]:
        base, end = self._num_sent, min(self._num_committed + AHEAD, len(TEXT))
        if end <= base:
            return []
        tokens = tuple((TEXT[i] + 1) % NUM_WORDS if self._is_wrong(i) else TEXT[i] for i in range(base, end))
        self._num_sent = end
        self._num_blocks += 1
        return [Candidates(self._window_id, base, self._num_committed, tokens, self._num_blocks)]

    def _is_wrong(self, position: int) -> bool:
        return hash((self._number, self._window_id, position)) % 100 < ERRORS_PERCENT

    def _audio(self, start_sample: int) -> list[ToTarget]:
        """Return the silence of a window, in pieces."""
        num, end = self._piece_samples, start_sample + WINDOW_SAMPLES
        return [AudioChunk(i, bytes(2 * min(num, end - i))) for i in range(start_sample, end, num)]


@dataclass(frozen=True, slots=True)
class RecitedSettings:
    num_sessions: int
    pass_ms: float
    core: int


async def serve_recited(settings: RecitedSettings, probes: Probes) -> None:
    """Serve until a signal; the probe ``restart`` begins a period, the others sum it up."""
    limits = Limits(max_sessions=settings.num_sessions)
    config = TargetConfig(
        limits=limits, port=0, drain_timeout_s=0.0, max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS
    )
    prepare_process(config.device, None, (settings.core,))
    model = RecitedModel(settings.num_sessions, pass_ms=settings.pass_ms)
    started = [0, 0]

    def restart() -> int:
        model.passes = []
        started[:] = time.process_time_ns(), model.thread_ns
        return os.getpid()

    probes["restart"] = restart
    probes["num_passes"] = lambda: len(model.passes)
    probes["num_rows"] = lambda: sum(each.num_rows for each in model.passes)
    probes["num_tokens"] = lambda: sum(each.num_tokens for each in model.passes)
    probes["python_ns"] = lambda: sum(each.python_ns for each in model.passes)
    probes["p95_python_ns"] = lambda: int(np.quantile([each.python_ns for each in model.passes], 0.95))
    probes["process_ns"] = lambda: time.process_time_ns() - started[0]
    probes["engine_ns"] = lambda: model.thread_ns - started[1]
    async with running_service(config, scripted_checkpoint(vocabulary=RECITED), model) as service:
        await serve(services_of(service), config, on_drain=service.announce_drain)
