"""What a target server counts."""

from __future__ import annotations

from specwhisper.model.checkpoint import Checkpoint
from specwhisper.observe.metrics.engine import EngineMetrics
from specwhisper.observe.metrics.server import ServerMetrics


class TargetMetrics(ServerMetrics):
    """Sessions, errors, and what the engine does; all names begin with ``specwhisper_target_``.

    Attributes
    ----------
    engine : counts the engine's events.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "") -> None:
        super().__init__("specwhisper_target", model=checkpoint.name, dtype=checkpoint.dtype, device=device)
        self.engine = EngineMetrics(self)
