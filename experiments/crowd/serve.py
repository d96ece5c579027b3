"""A target server that recites, in a process and on a core of its own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np

from experiments.common.serve_scripted import scripted_checkpoint
from experiments.common.servers.forked import Probes
from experiments.crowd.in_process import MAX_NUM_BATCHED_TOKENS
from experiments.crowd.recited import RECITED, RecitedModel
from specwhisper.engine.process import prepare_process
from specwhisper.rpc.serving import serve
from specwhisper.types import Limits
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import running_service, services_of

PROBES = (
    *("num_passes", "num_rows", "num_tokens", "python_ns", "p95_python_ns", "p95_gap_ns"),
    *("process_ns", "engine_ns"),
)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the server.

    Attributes
    ----------
    cores : that the process may use.
    """

    num_sessions: int
    pass_ms: float
    cores: tuple[int, ...]


async def serve_recited(settings: ServerSettings, probes: Probes) -> None:
    """Serve until a signal; the probe ``restart`` begins a period, the others sum it up."""
    limits = Limits(max_sessions=settings.num_sessions)
    config = TargetConfig(
        limits=limits, port=0, drain_timeout_s=0.0, max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS
    )
    prepare_process(config.device, None, settings.cores)
    model = RecitedModel(settings.num_sessions, pass_ms=settings.pass_ms)
    started = [0, 0]

    def restart() -> int:
        model.passes = []
        started[:] = time.process_time_ns(), model.thread_ns
        return os.getpid()

    def p95(values: list[int]) -> int:
        return int(np.quantile(values, 0.95)) if values else 0

    probes["restart"] = restart
    probes["num_passes"] = lambda: len(model.passes)
    probes["num_rows"] = lambda: sum(each.num_rows for each in model.passes)
    probes["num_tokens"] = lambda: sum(each.num_tokens for each in model.passes)
    probes["python_ns"] = lambda: sum(each.python_ns for each in model.passes)
    probes["p95_python_ns"] = lambda: p95([each.python_ns for each in model.passes])
    probes["p95_gap_ns"] = lambda: p95([each.gap_ns for each in model.passes])
    probes["process_ns"] = lambda: time.process_time_ns() - started[0]
    probes["engine_ns"] = lambda: model.thread_ns - started[1]
    checkpoint = scripted_checkpoint(vocabulary=RECITED)
    async with running_service(config, checkpoint, model) as service:
        await serve(services_of(service), config, on_drain=service.announce_drain)
