"""Metrics of a target server."""

from __future__ import annotations

from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.observe.metrics import EngineMetrics, ServerMetrics


class TargetMetrics(ServerMetrics):
    """Metrics of sessions, errors and the engine's work; all names begin with ``specwhisper_target_``."""

    def __init__(self, checkpoint: Checkpoint, device: str = "") -> None:
        super().__init__("specwhisper_target", model=checkpoint.name, dtype=checkpoint.dtype, device=device)
        self.engine = EngineMetrics(self)
