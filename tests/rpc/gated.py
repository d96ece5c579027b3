"""A scripted model that blocks until a test opens its gate."""

import threading
from functools import partial

from experiments.common.models.scripted import ScriptedModel
from tests.rpc.services import MAX_SESSIONS


class Gated(ScriptedModel):
    """Blocks in ``where``, "encode" or "score", until the gate opens."""

    def __init__(self, where: str = "score", **kwargs) -> None:
        super().__init__(MAX_SESSIONS, **kwargs)
        self.gate, self.is_there = threading.Event(), threading.Event()
        setattr(self, where, partial(self._wait, getattr(self, where)))

    def _wait(self, call, *args):
        self.is_there.set()
        self.gate.wait(30)
        return call(*args)
