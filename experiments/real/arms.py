"""What is timed: this project in one process and over servers, and faster-whisper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Worker
from experiments.peers.arms import FLOAT32, INT8, Run, System, floats
from experiments.peers.others import FasterWhisper
from experiments.peers.served import Service, served_pair
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

OURS, SERVERS, PEER = "one-process", "servers", "faster-whisper"
DRAFT_DTYPE = INT8  # it never changes the text


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


class OneProcess:
    """The pair in one process, as :class:`SpeculativeWhisper` offers it; made in a process of its own."""

    def __init__(self, target: str, draft: str, dtype: str) -> None:
        pair = SpeculativeWhisper(
            draft, target, "cpu", dtype=dtype, draft_dtype=DRAFT_DTYPE, batch_size=1, cut_windows=True
        )
        self._models = {Mode.ONE_PROCESS: pair, Mode.TARGET_ONLY: pair.without_draft()}

    def run(self, mode: Mode, samples: Sequence[Sample], _: bool) -> Run:
        total = SpeculationStatistics()
        tokens, wall_s = [], []
        for sample in samples:
            audio = floats(sample.pcm)
            started_s = perf_counter()
            transcript = self._models[mode].transcribe(audio, language="en", greedy=True, progress=False)
            wall_s.append(perf_counter() - started_s)
            total.add(transcript.stats)
            tokens.append(tuple(token for segment in transcript.segments for token in segment.tokens))
        return Run(tuple(wall_s), tuple(tokens), total)


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
        if arm.program == SERVERS:
            return self._served().run(arm.mode, samples, timestamps=True)
        way = System.FASTER_WHISPER if arm.program == PEER else arm.mode
        return self._worker(arm).call("run", way, samples, True)

    def _worker(self, arm: Arm) -> Worker:
        key = arm.program, arm.dtype
        if key not in self._workers:
            build: Callable[[], Any] = partial(OneProcess, self._target, self._draft, arm.dtype)
            if arm.program == PEER:
                build = partial(FasterWhisper, self._peer_folder, arm.dtype)
            self._workers[key] = Worker(build, cores=self._cores[:1])
            self._stack.callback(self._workers[key].stop)
        return self._workers[key]

    def _served(self) -> Service:
        if self._service is None:
            options = "--dtype", DRAFT_DTYPE, "--cut-windows"
            served = served_pair(
                self._target, self._draft, *options, special=self._special, cores=self._cores
            )
            self._service = self._stack.enter_context(served)
        return self._service
