"""Measure what a mechanism gains a real pair of servers, over an emulated link."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import on_cores, running_process
from experiments.latency.cells import CHOSEN
from experiments.latency.networks.backends import Network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.lab import cores_used
from experiments.latency.sweep.timed_client import TimedClient
from experiments.latency.terms import OPTIONS
from specwhisper.types import Mode

SERVE = "experiments.latency.ablation.serve"
POLL_S, SWITCH_S = 0.01, 10.0


@dataclass(frozen=True)
class Switchable:
    """A pair of servers, of which one mechanism can be off, and their client."""

    client: TimedClient
    network: Network
    files: dict[int, Path]  # that each server reads, by process

    def connect(self, round_trip_s: float, seed: int) -> None:
        """Use a round trip from now on."""
        self.network.apply(Conditions(round_trip_s), seed=seed)
        self.client.warm_up()

    def time_s(self, samples: Sequence[Sample], mode: Mode, *, without: str | None = None) -> float:
        """Return the seconds per token of all recordings, from the first commit of each to its last.

        Raises
        ------
        RuntimeError
            if a server does not switch the mechanism off.
        """
        for process, file in self.files.items():
            file.write_text(without or "")
            os.kill(process, signal.SIGUSR1)
        deadline_s = time.monotonic() + SWITCH_S
        while any(file.exists() for file in self.files.values()):
            if time.monotonic() > deadline_s:
                raise RuntimeError("A server has not switched its mechanisms.")
            time.sleep(POLL_S)
        timed = [self.client.transcribe(sample, mode, CHOSEN, OPTIONS[0]) for sample in samples]
        num_later = sum(each.statistics.num_committed - each.num_first for each in timed)
        return sum(each.last_s - each.first_s for each in timed) / max(1, num_later)


@contextmanager
def switchable_pair(target: str, draft: str, draft_dtype: str, network: Network) -> Iterator[Switchable]:
    """Start a target server far away and a draft server here, a core each."""
    cores = cores_used()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        far = stack.enter_context(
            running_process(
                SERVE,
                *("--model", target, "--insecure", "--host", network.far_host),
                cores=cores["target server"],
                prefix=network.far_prefix,
                route_to=network.route_to,
                before=("specwhisper_target_server", str(folder / "target")),
            )
        )
        near = stack.enter_context(
            running_process(
                SERVE,
                *("--draft-model", draft, "--dtype", draft_dtype, "--target", far.address),
                cores=cores["draft server"],
                before=("specwhisper_draft_server", str(folder / "draft")),
            )
        )
        stack.enter_context(on_cores(cores["client"]))
        client = TimedClient(near.address)
        stack.callback(client.close)
        yield Switchable(client, network, {far.process: folder / "target", near.process: folder / "draft"})
