"""Capture what a GPU is asked to do once, replay it with other numbers: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
        caller = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            run()
        caller.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Meanwhile other threads may encode: only this one has to leave the device's memory as it is.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            output = run()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay
