"""Where a run comes from: a sweep that goes on elsewhere mixes what should not be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.common.bench.report import machine_facts, version_facts


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """The code that was measured, and on what."""

    commit: str
    machine: str

    @staticmethod
    def here() -> Origin:
        """Give this code's and this machine's; to be asked before a thread is pinned to a core."""
        machine = machine_facts()
        return Origin(version_facts()["specwhisper"], f"{machine['cpu']}, {machine['cores']} cores")

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Origin:
        """Read it from a run's facts."""
        return Origin(facts["commit"], facts["machine"])

    def facts(self) -> dict[str, str]:
        """Give it as plain values."""
        return asdict(self)


def describe_origins(origins: Iterable[Origin]) -> str:
    """Tell all of them in one line."""
    found = sorted(set(origins))
    commits = sorted({origin.commit for origin in found})
    machines = sorted({origin.machine for origin in found})
    return f"commit {' and '.join(commits)}; {' and '.join(machines)}"
