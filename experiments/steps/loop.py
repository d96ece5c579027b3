"""Time that the target's loop adds to forward passes: rules, choice, ledgers, messages."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import Verifier
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Mode, WindowOpened

GARBAGE = 5  # any text token: what is proposed is wrong, so that every pass is as wide as the first


class Loop:
    """Sessions in one verifier, all of which propose as many tokens for every pass."""

    def __init__(self, checkpoint: Checkpoint, *, sessions: int, width: int, seed: int) -> None:
        self._model = WhisperModel(checkpoint, sessions)
        self._forward_s = 0.0
        backend: Any = self._model._backend  # what is timed is inside
        decoder = backend._decoder
        self._append, decoder.append = decoder.append, self._timed
        self._verifier = Verifier(self._model, executor=InlineExecutor())
        self._num_candidates = width - 1
        self._places: dict[str, tuple[int, int]] = {}  # window and committed tokens of each session
        random = np.random.default_rng(seed)
        for number in range(sessions):
            pcm = random.normal(0, 2_000, 16_000).astype("<i2").tobytes()
            self._verifier.open(str(number), Mode.SYNC, DecodingOptions.greedy(language="en"))
            self._verifier.submit(str(number), AudioChunk(0, pcm, is_last=True))
        self._step()

    def measure(self, passes: int) -> tuple[list[float], list[float]]:
        """Return the seconds of each step, and of its forward pass; every session takes part."""
        totals, forwards = [], []
        for _ in range(passes):
            for session, (window, base) in self._places.items():
                block = Candidates(window, base, base, (GARBAGE,) * self._num_candidates)
                self._verifier.submit(session, block)
            self._forward_s = 0.0
            started_s = time.perf_counter()
            self._step()
            totals.append(time.perf_counter() - started_s)
            forwards.append(self._forward_s)
        return totals, forwards

    def _step(self) -> None:
        for session, event in self._verifier.step():
            if isinstance(event, WindowOpened):
                self._places[session] = (event.window.id, 0)
            elif isinstance(event, Failed):
                raise event.error
            elif isinstance(event, Commit):
                if event.is_final:
                    raise RuntimeError("A window ended while its passes were timed: measure fewer.")
                window, _ = self._places[session]
                self._places[session] = (window, event.base + len(event.tokens))

    def _timed(self, *arguments: Any) -> Any:
        started_s = time.perf_counter()
        result = self._append(*arguments)
        self._forward_s += time.perf_counter() - started_s
        return result
