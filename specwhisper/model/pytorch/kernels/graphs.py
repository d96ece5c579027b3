"""Capture a forward pass in a CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TypeAlias, TypeVar

import torch

# While a graph is captured, no other thread may use the device: encoders and other captures wait. A thread
# that holds it may capture.
CAPTURING = RLock()

T = TypeVar("T")
Run: TypeAlias = Callable[[], T]  # its inputs and its output, tensors, have fixed addresses


def uncaptured(run: Run[T]) -> Run[T]:
    """Return the function itself: for devices without graphs."""
    return run


class CudaGraphs:
    """Captures functions that run one after the other, in one pool of memory.

    Read each output before the next replay, in the order of the stream: the next one overwrites it.

    Parameters
    ----------
    is_urgent : whether the kernels go before those that are not. A graph keeps the priority of the stream on
        which it was captured, whatever stream it is replayed on.
    """

    def __init__(self, device: torch.device, *, is_urgent: bool = False) -> None:
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(priority=-1 if is_urgent else 0)
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run[T]) -> Run[T]:
        """Run a function once, to compile and set up everything, then capture it."""
        with CAPTURING, torch.cuda.device(self._stream.device):
            return self._captured(run)

    def _captured(self, run: Run[T]) -> Run[T]:
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            run()
        caller.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # A draft on the same GPU may be running: only this thread must not allocate.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            output = run()

        def replay() -> T:
            graph.replay()
            return output

        return replay
