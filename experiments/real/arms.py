"""What is timed: this project in one process and over servers, and faster-whisper."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from experiments.baselines.service import Service
from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Worker, running_server
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

OURS, SERVERS, PEER = "one-process", "servers", "faster-whisper"
FLOAT32, INT8 = "float32", "int8"
DRAFT_DTYPE = INT8  # it never changes the text
GREEDY: dict[str, Any] = {
    "language": "en",
    "beam_size": 1,
    "temperature": 0.0,
    "condition_on_previous_text": False,
    "compression_ratio_threshold": None,
    "log_prob_threshold": None,
    "no_speech_threshold": None,
}


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """A program, how it uses the draft, and the precision of the target.

    Attributes
    ----------
    program : of :data:`OURS`, :data:`SERVERS` and :data:`PEER`.
    mode : ``None`` for faster-whisper, which has none.
    """

    program: str
    mode: Mode | None
    dtype: str

    def __str__(self) -> str:
        if self.mode is None:
            return f"{self.program}, {self.dtype}"
        where = " over two servers" if self.program == SERVERS else ""
        return f"{self.mode}{where}, {self.dtype}"


ALONE, ALONE_INT8 = (Arm(OURS, Mode.TARGET_ONLY, dtype) for dtype in (FLOAT32, INT8))
PAIR, PAIR_INT8 = (Arm(OURS, Mode.ONE_PROCESS, dtype) for dtype in (FLOAT32, INT8))
FULL = Arm(SERVERS, Mode.FULL, FLOAT32)
PEERS = PEER_FLOAT32, PEER_INT8 = tuple(Arm(PEER, None, dtype) for dtype in (FLOAT32, INT8))
TIMED = (ALONE, PAIR, FULL, PEER_FLOAT32, ALONE_INT8, PAIR_INT8, PEER_INT8)
UNTIMED = tuple(Arm(SERVERS, mode, FLOAT32) for mode in (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED))


@dataclass(frozen=True, slots=True)
class Run:
    """All recordings, transcribed once, one after the other.

    Attributes
    ----------
    wall_s : of each recording, samples in memory to the last token.
    tokens : of each recording, text and timestamps.
    """

    wall_s: tuple[float, ...]
    tokens: tuple[tuple[int, ...], ...]
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)


class OneProcess:
    """The pair in one process, as :class:`SpeculativeWhisper` offers it; made in a process of its own."""

    def __init__(self, target: str, draft: str, dtype: str) -> None:
        pair = SpeculativeWhisper(
            draft, target, "cpu", dtype=dtype, draft_dtype=DRAFT_DTYPE, batch_size=1, cut_windows=True
        )
        self._models = {Mode.ONE_PROCESS: pair, Mode.TARGET_ONLY: pair.without_draft()}

    def run(self, mode: Mode, samples: Sequence[Sample]) -> Run:
        """Transcribe all recordings."""
        total = SpeculationStatistics()
        tokens, wall_s = [], []
        for sample in samples:
            audio = _floats(sample)
            started_s = time.perf_counter()
            transcript = self._models[mode].transcribe(audio, language="en", greedy=True, progress=False)
            wall_s.append(time.perf_counter() - started_s)
            total.add(transcript.stats)
            tokens.append(tuple(token for segment in transcript.segments for token in segment.tokens))
        return Run(tuple(wall_s), tuple(tokens), total)


class FasterWhisper:
    """faster-whisper, greedy, with timestamps; made in a process of its own."""

    def __init__(self, folder: Path, dtype: str) -> None:
        from faster_whisper import WhisperModel  # a peer, installed by hand

        self._model = WhisperModel(str(folder), device="cpu", compute_type=dtype, cpu_threads=1)

    def run(self, mode: Mode | None, samples: Sequence[Sample]) -> Run:
        """Transcribe all recordings."""
        tokens, wall_s = [], []
        for sample in samples:
            audio = _floats(sample)
            started_s = time.perf_counter()
            segments, _ = self._model.transcribe(audio, **GREEDY)
            tokens.append(tuple(token for segment in segments for token in segment.tokens))
            wall_s.append(time.perf_counter() - started_s)
        return Run(tuple(wall_s), tuple(tokens))


class Arms:
    """Runs arms: programs on one core each, the target server on the first and the draft's on the second.

    Parameters
    ----------
    special : ids of the target that are neither text nor timestamps: first, one past the last.
    peer_folder : CTranslate2 folder of the target; ``None`` for a target in another format.
    """

    def __init__(
        self,
        target: str,
        draft: str,
        special: tuple[int, int],
        peer_folder: Path | None,
        cores: tuple[int, int],
    ) -> None:
        self._stack = ExitStack()
        self._target, self._draft, self._special = target, draft, special
        self._peer_folder = peer_folder
        self._cores = cores
        self._workers: dict[tuple[str, str], Worker] = {}
        self._service: Service | None = None

    def __enter__(self) -> Arms:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def missing(self, arm: Arm) -> str | None:
        """Return why an arm cannot run here."""
        if arm.program == PEER and find_spec("faster_whisper") is None:
            return "not installed: faster-whisper"
        if arm.program == PEER and self._peer_folder is None:
            return "the target is no CTranslate2 folder"
        return None

    def run(self, arm: Arm, samples: Sequence[Sample]) -> Run:
        """Transcribe all recordings; start what the arm needs first."""
        if arm.program != SERVERS:
            run: Run = self._worker(arm).call("run", arm.mode, samples)
            return run
        total = SpeculationStatistics()
        measured = [self._served().transcribe(sample, True, arm.mode or Mode.FULL) for sample in samples]
        for one in measured:
            total.add(one.statistics or SpeculationStatistics())
        return Run(tuple(one.wall_s for one in measured), tuple(one.tokens for one in measured), total)

    def _worker(self, arm: Arm) -> Worker:
        key = arm.program, arm.dtype
        if key not in self._workers:
            build: Callable[[], FasterWhisper | OneProcess]
            if arm.program == PEER and self._peer_folder is not None:
                build = partial(FasterWhisper, self._peer_folder, arm.dtype)
            else:
                build = partial(OneProcess, self._target, self._draft, arm.dtype)
            self._workers[key] = Worker(build, cores=self._cores[:1])
            self._stack.callback(self._workers[key].stop)
        return self._workers[key]

    def _served(self) -> Service:
        if self._service is None:
            target, draft = ([core] for core in self._cores)
            address = self._stack.enter_context(
                running_server("specwhisper_target_server", "--model", self._target, cores=target)
            )
            pair = "--target", address, "--draft-model", self._draft, "--dtype", DRAFT_DTYPE, "--cut-windows"
            served = self._stack.enter_context(running_server("specwhisper_draft_server", *pair, cores=draft))
            self._service = Service(served, gamma=None, special=self._special)
            self._stack.callback(self._service.close)
        return self._service


def _floats(sample: Sample) -> np.ndarray:
    return np.frombuffer(sample.pcm, "<i2").astype(np.float32) / np.float32(32768)
