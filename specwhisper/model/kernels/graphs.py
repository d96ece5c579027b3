"""Capture what a GPU is asked to do once, replay it with other numbers: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

# While a graph is captured nothing else may be asked of the device: encoders wait, and so do other captures.
CAPTURING = Lock()

Run = Callable[[], Tensor]  # reads tensors that stay where they are, and gives one that does


def uncaptured(run: Run) -> Run:
    """Give what runs as it is: for devices without graphs."""
    return run


class CudaGraphs:
    """Captures functions that run one after the other: they share one pool of memory.

    What one of them gives is overwritten by the next and has to be read before, in the order of the stream.
    """

    def __init__(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream()
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        """Run a function once, so that nothing is compiled or set up later, then capture it."""
        with CAPTURING, torch.cuda.device(self._stream.device):
            return self._captured(run)

    def _captured(self, run: Run) -> Run:
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            run()
        caller.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # A draft beside its target may have passes under way: only this thread has to leave memory as it is.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            output = run()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay
