"""Real processes, each pinned to its cores: servers as operators start them, and workers of our own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import grpc
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from transformers.utils import logging

from specwhisper_client.cli.server_process import STOP_TIMEOUT_S, following, start_server

START_TIMEOUT_S = 120.0
CAN_PIN = hasattr(os, "sched_setaffinity")


def available_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if CAN_PIN else list(range(os.cpu_count() or 1))


def first_two_cores() -> tuple[int, int]:
    """Return a core for the target and one for all else; where there is only one, they share it."""
    cores = available_cores()
    return cores[0], cores[min(1, len(cores) - 1)]


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Pin this thread, and with it every process it starts meanwhile; without effect where systems cannot."""
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
    """A server that runs: where it is reached, and the id of its process."""

    address: str
    process: int


@contextmanager
def running_server(
    module: str,
    *arguments: str,
    cores: Sequence[int],
    prefix: Sequence[str] = (),
    route_to: Callable[[str], str] = lambda address: address,
) -> Iterator[str]:
    """Run a server as :func:`running_process` does, and give its address."""
    with running_process(module, *arguments, cores=cores, prefix=prefix, route_to=route_to) as server:
        yield server.address


@contextmanager
def running_process(
    module: str,
    *arguments: str,
    cores: Sequence[int],
    prefix: Sequence[str] = (),
    route_to: Callable[[str], str] = lambda address: address,
) -> Iterator[Server]:
    """Run a server with one thread per core, give it once it is healthy, and stop it by SIGTERM.

    Parameters
    ----------
    prefix : what its command begins with.
    route_to : gives the address at which it is reached from here.
    """
    threads = str(len(cores))
    command = [sys.executable, "-m", module, "--port", "0", "--threads", threads, "--log-format", "json"]
    with on_cores(cores):
        process = start_server([*prefix, *command, *arguments])
    with following(process, module, start_timeout_s=START_TIMEOUT_S) as told:
        address = route_to(told)
        _wait_healthy(address)
        yield Server(address, process.pid)


def _wait_healthy(address: str) -> None:
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        request = health_pb2.HealthCheckRequest()
        health_pb2_grpc.HealthStub(channel).Check(request, timeout=START_TIMEOUT_S, wait_for_ready=True)


class Worker:
    """An object in a pinned process of its own; its methods are called by name, one at a time.

    Parameters
    ----------
    build : makes the object, in the process; a picklable callable.
    """

    def __init__(self, build: Callable[[], Any], *, cores: Sequence[int]) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, build, len(cores)), daemon=True)
        with on_cores(cores):
            self._process.start()
        theirs.close()

    @property
    def process(self) -> int:
        """Id of the process."""
        return self._process.pid or 0

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and give its result, or raise its error."""
        self._connection.send((method, arguments))
        try:
            result, error = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"A worker process died while it ran '{method}'.") from None
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()


def _work(connection: Connection, build: Callable[[], Any], threads: int) -> None:
    torch.set_num_threads(threads)
    logging.disable_progress_bar()
    worker = error = None
    try:
        worker = build()
    except Exception as failure:
        error = failure
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        result = None
        if worker is not None:
            error = None
            try:
                result = getattr(worker, method)(*arguments)
            except Exception as failure:
                error = failure
        connection.send((result, error))
