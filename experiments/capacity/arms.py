"""The processes of each arm, started when first needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from experiments.capacity.clients import ClientProcess, InOneProcess, OverNetwork
from experiments.capacity.load import LEAD_S, Arm, Load, Outcome, together
from experiments.capacity.models import Measured
from experiments.capacity.passes import PassTimer
from experiments.capacity.usage import Meter, available_mb
from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Worker, running_server

MEMORY_SHARE = 0.6  # share of free memory for processes with a model each


class Arms:
    """A target server with its generator, and processes with both models, one per client.

    A server has as many slots as sessions, so that its memory is that of these sessions.

    Parameters
    ----------
    target_cores, generator_cores : cores of the models and of the clients; a process per client also uses the
        target's cores.
    max_processes : most processes with a model each.
    """

    def __init__(
        self,
        measured: Measured,
        samples: Sequence[Sample],
        folder: Path,
        *,
        target_cores: Sequence[int],
        generator_cores: Sequence[int],
        max_processes: int,
    ) -> None:
        self._measured = measured
        self._samples = samples
        self._meter = folder / "meter"
        self._target_cores = target_cores
        self._generator_cores = generator_cores
        self._max_processes = max_processes
        self._stack = ExitStack()
        self._server = self._stack.enter_context(ExitStack())
        self._num_slots = 0  # of the running server
        self._generator: Worker | None = None
        self._processes: list[Worker] = []

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def room(self) -> tuple[int, str]:
        """Return the largest number of processes with both models, and its reason."""
        one = self._process(0)
        own_mb = one.call("resident_mb")
        room_mb = MEMORY_SHARE * available_mb() + len(self._processes) * own_mb
        fitting = int(room_mb / own_mb)
        if fitting < self._max_processes:
            return fitting, f"memory: a process holds {own_mb:.0f} MB"
        return self._max_processes, "--max-processes"

    def run(self, load: Load) -> Outcome:
        """Run a load on its arm."""
        if load.arm is not Arm.PER_CLIENT:
            generator = self._over_network(load.num_sessions)
            outcome: Outcome = generator.call(
                "run", load, range(load.num_sessions), time.monotonic() + LEAD_S
            )
            return outcome
        workers = [self._process(number) for number in range(load.num_sessions)]
        origin_s = time.monotonic() + LEAD_S
        with ThreadPoolExecutor(len(workers)) as pool:
            calls = [
                pool.submit(worker.call, "run", load, [number], origin_s)
                for number, worker in enumerate(workers)
            ]
            return together([call.result() for call in calls])

    def pass_times(
        self, sizes: Sequence[tuple[int, int]], held: int
    ) -> tuple[dict[tuple[int, int], float], int]:
        """Return times of forward passes on the target's cores, and the bytes of a slot."""
        num_slots = max(batch_size for batch_size, _ in sizes)
        build = partial(PassTimer, self._measured, self._samples[0], num_slots, held)
        timer = Worker(build, cores=self._target_cores)
        try:
            return timer.call("times_s", sizes), timer.call("bytes_per_slot")
        finally:
            timer.stop()

    def _over_network(self, num_slots: int) -> Worker:
        if self._generator is None or self._num_slots != num_slots:
            self._server.close()
            self._num_slots = num_slots
            measured = self._measured
            Meter.at(self._meter)
            arguments = {
                "--shape": measured.shape,
                "--dtype": measured.dtype,
                "--trace": str(measured.trace),
                "--meter": str(self._meter),
                "--max-sessions": str(num_slots),
            }
            address = self._server.enter_context(
                running_server(
                    "experiments.capacity.serve_target",
                    *(word for pair in arguments.items() for word in pair),
                    *(["--decoding-only"] if measured.decodes_only else []),
                    cores=self._target_cores,
                )
            )
            connection = OverNetwork(address, num_slots)
            self._generator = self._start(self._server, connection, self._generator_cores, self._meter)
        return self._generator

    def _process(self, number: int) -> Worker:
        while number >= len(self._processes):
            self._processes.append(self._start(self._stack, InOneProcess(), self._target_cores, None))
        return self._processes[number]

    def _start(
        self,
        stack: ExitStack,
        connection: OverNetwork | InOneProcess,
        cores: Sequence[int],
        meter: Path | None,
    ) -> Worker:
        build = partial(ClientProcess, connection, self._measured, self._samples, meter)
        worker = Worker(build, cores=cores)
        stack.callback(worker.stop)
        worker.call("resident_mb")  # returns when everything is loaded
        stack.callback(worker.call, "close")
        return worker
