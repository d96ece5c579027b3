"""Report results: machine, versions, command, and the bars that they must meet."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers.utils import logging

ROOT = Path(__file__).parents[3]
COMMIT = "SPECWHISPER_COMMIT"  # variable for a copy without the repository
PAGE_WIDTH = 170
LOAD_AT_START = os.getloadavg()[0]  # load of other processes
PACKAGES = ("torch", "transformers", "grpcio", "protobuf", "numpy")


@dataclass(frozen=True, slots=True)
class Bar:
    """A claim with its measured value, which must lie below ``bound``, or not below it with ``at_least``.

    ``shown`` is the text of the value, with its spread.
    """

    name: str
    value: float
    bound: float
    shown: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value < self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<"
        return f"{self.name}: {self.shown}, bar {sign} {self.bound:g}: {'holds' if self.holds else 'short'}"


def none(name: str, num: int, of: int | None = None, note: str = "") -> Bar:
    """Return the bar of something that must not happen."""
    shown = f"{num}" if of is None else f"{num} of {of}"
    return Bar(name, num, 1, f"{shown}, {note}" if note else shown)


def at_most(name: str, values: Iterable[float], bound: float, note: str = "") -> Bar:
    """Return the bar of the greatest value."""
    values = list(values)
    note = note or (f"at most of {len(values)}" if len(values) > 1 else "")
    return Bar(name, max(values), bound, f"{max(values):.3g} {note}".strip())


def open_console() -> Console:
    """Open the terminal, or a page wide enough for tables where output goes to a file."""
    logging.disable_progress_bar()  # bars of loading models disturb our own
    console = Console(width=None if sys.stdout.isatty() else PAGE_WIDTH)
    if LOAD_AT_START > 0.5:
        console.print(
            f"The machine is busy (load {LOAD_AT_START:.1f}): figures will be inaccurate.", style="yellow"
        )
    return console


def print_bars(bars: Sequence[Bar], console: Console) -> bool:
    for bar in bars:
        style = "green" if bar.holds else "red"
        console.print(str(bar), style=style, highlight=False, markup=False, soft_wrap=True)
    return all(bar.holds for bar in bars)


def machine_facts() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "os": platform.platform(terse=True),
        "load_at_start": round(LOAD_AT_START, 2),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def version_facts() -> dict[str, str]:
    versions = {package: installed(package) for package in PACKAGES}
    return {"python": platform.python_version(), **versions, "specwhisper": _commit()}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def write_json(path: Path, *, models: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """Write figures with command, machine and versions."""
    module = getattr(sys.modules["__main__"].__spec__, "name", "").removesuffix(".__main__")
    content = {
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "versions": version_facts(),
        "models": models,
    }
    path.write_text(json.dumps({**content, **figures}, indent=1) + "\n")


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Return the commit, marked if files differ from it.

    For a copy without the repository, the variable :data:`COMMIT` names it.
    """
    if named := os.environ.get(COMMIT):
        return named
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:  # there is no git
        return "unknown"
    return described.stdout.strip() or "unknown"
