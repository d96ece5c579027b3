"""Servers and workers in processes pinned to cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from transformers.utils import logging

from specwhisper.model.backends import limit_threads
from specwhisper_client.cli.server_process import following, start_server

START_TIMEOUT_S = 120.0
TARGET_SERVER, DRAFT_SERVER = "specwhisper_target_server", "specwhisper_draft_server"
CAN_PIN = hasattr(os, "sched_setaffinity")


def available_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if CAN_PIN else list(range(os.cpu_count() or 1))


def first_two_cores() -> tuple[int, int]:
    """Return a core for the target and one for the rest; the same on a single-core machine."""
    cores = available_cores()
    return cores[0], cores[min(1, len(cores) - 1)]


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Pin this thread and the processes that it starts; without effect where pinning is unsupported."""
    if not CAN_PIN:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    process: int


@contextmanager
def running_process(
    module: str,
    *arguments: str,
    cores: Sequence[int],
    prefix: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a server with one thread per core; yield it once it is healthy, then stop it by SIGTERM.

    Parameters
    ----------
    prefix : first words of its command.
    """
    threads = str(len(cores))
    common = ["--port", "0", "--threads", threads, "--log-format", "json"]
    command = [sys.executable, "-m", module, *common]
    with on_cores(cores):
        process = start_server([*prefix, *command, *arguments])
    with following(process, module, start_timeout_s=START_TIMEOUT_S) as address:
        _wait_healthy(address)
        yield Server(address, process.pid)


@contextmanager
def running_pair(
    target: str, draft: str, *draft_options: str, cores: Sequence[int], sessions: int | None = None
) -> Iterator[tuple[Server, Server]]:
    """Run a target server on the first core, and a draft server on the last."""
    more = () if sessions is None else ("--max-sessions", str(sessions))
    with running_process(TARGET_SERVER, "--model", target, *more, cores=cores[:1]) as far:
        pair = "--target", far.address, "--draft-model", draft, *draft_options, *more
        with running_process(DRAFT_SERVER, *pair, cores=cores[-1:]) as near:
            yield far, near


def _wait_healthy(address: str) -> None:
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        request = health_pb2.HealthCheckRequest()
        health_pb2_grpc.HealthStub(channel).Check(request, timeout=START_TIMEOUT_S, wait_for_ready=True)


class Worker:
    """An object in its own pinned process; its methods are called by name, one at a time.

    Parameters
    ----------
    build : picklable callable that creates the object in the process.
    """

    def __init__(self, build: Callable[[], Any], *, cores: Sequence[int]) -> None:
        begin = (build, len(cores))
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=begin)
        with on_cores(cores):
            self._pid = self._pool.submit(os.getpid)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process once it has no call."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def process(self) -> int:
        return self._pid.result()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method; return its result or raise its error."""
        try:
            return self._pool.submit(_call, method, arguments).result()
        except BrokenProcessPool:
            raise RuntimeError(f"A worker process died while it ran '{method}'.") from None


def _begin(build: Callable[[], Any], threads: int) -> None:
    """Prepare the process; the first call builds the object, and raises its error."""
    limit_threads(threads)
    logging.disable_progress_bar()
    global _built
    _built = cache(build)


def _call(method: str, arguments: Sequence[Any]) -> Any:
    return getattr(_built(), method)(*arguments)
