"""``specwhisper top``: its options and its loop."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.console import Console
from rich.live import Live

from specwhisper.errors import InvalidRequest
from specwhisper.printable import print_table
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import Credentials
from specwhisper.settings.command_line import reading, takes
from specwhisper.validated import number, option, switch
from specwhisper_top.figures import (
    KINDS,
    LOST,
    Figures,
    Reading,
    check_addresses,
    figures_of,
    find_targets,
    read_all,
    total_of,
)
from specwhisper_top.tables import cluster_view

WIDE = 160  # characters


def _listed(text: str) -> tuple[str, ...]:
    addresses = tuple(address.strip() for address in text.split(",") if address.strip())
    for address in addresses:
        split_address(address)
    return addresses


class Cluster:
    """The servers of a cluster, and the figures of their last reading.

    Attributes
    ----------
    rows, totals : figures since the reading before; after the first one, since the servers began.
    """

    def __init__(self, addresses: Sequence[str], locators: Sequence[str], credentials: Credentials) -> None:
        check_addresses([*addresses, *locators], credentials)
        self._addresses = addresses
        self._locators = locators
        self._credentials = credentials
        self._last: dict[str, Reading] = {}  # by server, if it has answered
        self.rows: list[Figures] = []
        self.totals: dict[str, Figures] = {}

    def read(self) -> None:
        found = [find_targets(locator, self._credentials) for locator in self._locators]
        targets = [address for addresses, _ in found for address in addresses]
        lost = [error for _, error in found if error is not None]
        known = list(dict.fromkeys([*targets, *self._addresses]))
        now = [*lost, *read_all(known, self._credentials)]
        readings = [(each, self._last.get(each.address)) for each in now]
        self.rows = [row for pair in readings for row in figures_of(*pair)]
        self.totals = {}
        for kind in KINDS:
            rows = [row for row in self.rows if row.kind == kind]
            if rows:
                self.totals[kind] = total_of(kind, rows, readings)
        self._last |= {each.address: each for each in now if not each.error}

    @property
    def is_lost(self) -> bool:
        return any(row.state == LOST for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "servers": [asdict(row) for row in self.rows],
            "totals": {kind: asdict(total) for kind, total in self.totals.items()},
        }


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    metrics: tuple[str, ...] = option(
        (), "Addresses of servers' metrics (--metrics-port) and of gateways.", "HOST:PORT,...", read=_listed
    )
    locator: tuple[str, ...] = option(
        (),
        "Addresses of locators' metrics; locators list targets and draft servers.",
        "HOST:PORT,...",
        read=_listed,
    )
    interval: float = number(
        2.0, 0.1, math.inf, "Seconds between two readings.", "SECONDS", not_with=("once", "json")
    )
    once: bool = switch(False, "Print one table of all figures since the servers began.")
    json: bool = switch(False, "Print one reading as JSON.")


@takes(TopOptions)
def top(context: typer.Context, wanted: TopOptions) -> None:
    """Watch the servers of a cluster. Shown are sessions, acceptance, round trips and queues."""
    with reading():
        if not (wanted.metrics or wanted.locator):
            raise InvalidRequest("No server is named: add --metrics HOST:PORT,... or --locator HOST:PORT,...")
        cluster = Cluster(wanted.metrics, wanted.locator, context.obj)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)  # nothing is cut off in a file
    if wanted.once or wanted.json or not console.is_terminal:
        cluster.read()
        if wanted.json:
            print(json.dumps(cluster.as_json(), indent=1))
        else:
            view = cluster_view(cluster.rows, cluster.totals, "since the servers began", width=console.width)
            print_table(console, view)
        if cluster.is_lost:
            raise typer.Exit(1)
        return
    with suppress(KeyboardInterrupt):
        _watch(cluster, wanted.interval, console)


def register(app: typer.Typer) -> None:
    app.command()(top)


def _watch(cluster: Cluster, interval_s: float, console: Console) -> None:
    since = "since the servers began"
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            started_s = time.monotonic()
            cluster.read()
            title = f"{time.strftime('%H:%M:%S')}   {since}   Ctrl-C ends"
            view = cluster_view(cluster.rows, cluster.totals, title, width=console.width)
            live.update(view, refresh=True)
            since = f"last {interval_s:g} s"
            time.sleep(max(0.0, started_s + interval_s - time.monotonic()))
