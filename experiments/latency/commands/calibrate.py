"""``calibrate``: measured round trips of the networks, by ping and by TCP echo."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated

import typer
from icmplib import ping
from rich.console import Console
from rich.table import Table

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.bench.stats import spread
from experiments.common.servers.processes import on_cores
from experiments.latency.cells import parse_times
from experiments.latency.networks.backends import NETWORKS, Network, open_network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.pair import cores_used
from specwhisper.errors import SpecWhisperError, UnsupportedOption

MESSAGE = b"x" * 40  # the size of a block of candidates
NUM_PINGS = 10
MAX_EXTRA_MS = 2.0  # most that a network may add to the requested delay
ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(65536):
        connection.sendall(data)
"""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Measured round trips of one network under one condition, in ms.

    Attributes
    ----------
    echo_ms : round trips of a small message over TCP.
    ping_ms : mean round trip of ICMP echoes; ``None`` for a proxy, which carries no packets.
    """

    network: str
    round_trip_ms: float
    echo_ms: tuple[float, ...]
    ping_ms: float | None

    @property
    def extra_ms(self) -> float:
        """Difference of the median to the requested round trip."""
        return median(self.echo_ms) - self.round_trip_ms


def calibrate(
    network: Annotated[str, typer.Option(help="Networks, separated by commas.")] = ",".join(NETWORKS),
    rtt_ms: Annotated[str, typer.Option(help="Round trips to request, in ms.")] = "0,1,5,20,100,300",
    jitter_ms: Annotated[float, typer.Option(help="Mean queueing delay each way, in ms.")] = 0.0,
    loss: Annotated[float, typer.Option(help="Share of packets lost, each way.")] = 0.0,
    messages: Annotated[int, typer.Option(min=3, help="Echoes for each condition.")] = 50,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure the networks' round trips against the requested ones."""
    console = open_console()
    found: list[Calibrated] = []
    try:
        round_trips = parse_times("0,5,50" if quick else rtt_ms, "--rtt-ms")
        for name in network.split(","):
            try:
                found += _measure(name, round_trips, jitter_ms, loss, 20 if quick else messages, seed)
            except UnsupportedOption as error:
                console.print(f"{name}: {error}", style="yellow", highlight=False, soft_wrap=True)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    _print(found, console)
    bars = [
        Bar(
            f"{one.network}, {one.round_trip_ms:g} ms: added delay",
            abs(one.extra_ms),
            MAX_EXTRA_MS,
            f"{one.extra_ms:.2f} ms",
        )
        for one in found
    ]
    if json is not None:
        figures = {"calibrated": [asdict(one) for one in found], "bars": list(map(str, bars))}
        write_json(json, models={}, figures=figures)
    sys.exit(0 if not check or print_bars(bars, console) else 1)


def _measure(
    name: str, round_trips_ms: Sequence[float], jitter_ms: float, loss: float, num_messages: int, seed: int
) -> list[Calibrated]:
    found = []
    cores = cores_used()
    with on_cores(cores["draft"]), open_network(name) as network, _echo(network) as connection:
        for round_trip_ms in round_trips_ms:
            conditions = Conditions(round_trip_ms / 1e3, jitter_ms / 1e3, loss)
            network.apply(conditions, seed=seed)
            _round_trip_ms(connection)
            echo_ms = tuple(_round_trip_ms(connection) for _ in range(num_messages))
            found.append(Calibrated(name, round_trip_ms, echo_ms, _ping_ms(network)))
    return found


@contextmanager
def _echo(network: Network) -> Iterator[socket.socket]:
    """Start an echo server at the far side and connect to it."""
    command = [*network.far_prefix, sys.executable, "-c", ECHO, network.far_host]
    with on_cores(cores_used()["target"]):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline().strip() if process.stdout is not None else ""
        host, _, port = network.route_to(f"{network.far_host}:{port}").rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
    finally:
        process.terminate()
        process.communicate()


def _round_trip_ms(connection: socket.socket) -> float:
    started_s = time.perf_counter()
    connection.sendall(MESSAGE)
    left = len(MESSAGE)
    while left:
        left -= len(connection.recv(left))
    return 1e3 * (time.perf_counter() - started_s)


def _ping_ms(network: Network) -> float | None:
    """Return the mean ping of the far side; ``None`` for a proxy, which carries no packets."""
    if not network.far_prefix:
        return None
    answered = ping(network.far_host, count=NUM_PINGS, interval=0.02)
    return float(answered.avg_rtt) if answered.is_alive else None


def _print(found: Sequence[Calibrated], console: Console) -> None:
    table = Table(title="Round trips in ms: median (quartiles) of TCP echoes", title_justify="left")
    for name in ("network", "requested", "echo", "ping"):
        table.add_column(name, justify="right")
    for one in found:
        ping = "" if one.ping_ms is None else f"{one.ping_ms:.2f}"
        table.add_row(one.network, f"{one.round_trip_ms:g}", f"{spread(one.echo_ms):.2f}", ping)
    console.print(table)
