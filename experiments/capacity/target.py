"""A target server that counts its passes and encodings, in a process and on a core of its own."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from experiments.common.replay.model import ReplayTarget
from experiments.common.replay.trace import Trace
from experiments.common.servers.forked import Probes
from experiments.common.servers.usage import resident_mb
from specwhisper.audio.recording import Recording
from specwhisper.engine.process import prepare_process
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model, WhisperModel
from specwhisper.rpc.serving import serve
from specwhisper.types import Limits
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import running_service, services_of


@dataclass(frozen=True, slots=True)
class Usage:
    """Running totals of the target's process; subtract two for the usage in between.

    Attributes
    ----------
    num_forwards, num_rows : forward passes, and their sessions.
    forward_ns, encode_ns, cpu_ns : processor time of the passes, of the encoder, and of the whole process.
    """

    num_forwards: int = 0
    num_rows: int = 0
    forward_ns: int = 0
    encode_ns: int = 0
    cpu_ns: int = 0

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))

    @property
    def batch_size(self) -> float:
        return self.num_rows / max(1, self.num_forwards)

    @property
    def decode_s(self) -> float:
        """Processor time without the encoder: forward passes, the loop around them, messages."""
        return (self.cpu_ns - self.encode_ns) / 1e9

    @property
    def encode_share(self) -> float:
        return self.encode_ns / max(1, self.cpu_ns)


class MeteredModel(WhisperModel):
    """A model on one thread that counts its forward passes and encodings, by the names of :class:`Usage`.

    Parameters
    ----------
    encode_once : whether each slot keeps its first window, so that later encodings take no time.
    """

    def __init__(self, checkpoint: Checkpoint, num_slots: int, *, encode_once: bool) -> None:
        super().__init__(checkpoint, num_slots)
        self.totals = Counter[str]()
        self._encode_once = encode_once
        self._is_encoded = [False] * num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        if self._encode_once and self._is_encoded[slot]:
            self.rollback(slot, 0)
            return
        self._is_encoded[slot] = True
        started_ns = time.thread_time_ns()
        super().encode(slot, recording, start_frame)
        self.totals["encode_ns"] += time.thread_time_ns() - started_ns

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        started_ns = time.thread_time_ns()
        scores = super().score(rows)
        self.totals["forward_ns"] += time.thread_time_ns() - started_ns
        self.totals["num_forwards"] += 1
        self.totals["num_rows"] += len(rows)
        return scores


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """The target of a trace, as a server.

    Attributes
    ----------
    decodes_only : whether each slot encodes only its first window, and the trace is replayed.
    """

    trace: Trace
    decodes_only: bool
    num_slots: int
    core: int


async def serve_target(settings: TargetSettings, probes: Probes) -> None:
    """Serve until a signal; each probe is a running total."""
    trace = settings.trace
    limits = Limits(max_sessions=settings.num_slots)
    config = TargetConfig(limits=limits, port=0, drain_timeout_s=0.0)
    prepare_process(config.device, 1, (settings.core,))
    checkpoint = load_checkpoint(trace.target)
    metered = MeteredModel(checkpoint, settings.num_slots, encode_once=settings.decodes_only)
    checkpoint.weights.close()
    model: Model = metered
    if settings.decodes_only:
        model = ReplayTarget(trace, checkpoint.vocabulary, metered)
    probes |= {name: partial(metered.totals.__getitem__, name) for name in Usage.__slots__}
    probes["cpu_ns"] = time.process_time_ns
    probes["resident_bytes"] = lambda: round(resident_mb(os.getpid()) * 1e6)
    async with running_service(config, checkpoint, model) as service:
        await serve(services_of(service), config, on_drain=service.announce_drain)
