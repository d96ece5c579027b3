"""Code and machine of a run: runs of different origins should not be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.common.bench.report import machine_facts, version_facts


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Commit and machine of a run."""

    commit: str
    machine: str

    @staticmethod
    def here() -> Origin:
        """Return the current origin; call it before a thread is pinned to a core."""
        machine = machine_facts()
        return Origin(version_facts()["specwhisper"], f"{machine['cpu']}, {machine['cores']} cores")

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Origin:
        """Read a run's origin from its facts."""
        return Origin(facts["commit"], facts["machine"])

    def facts(self) -> dict[str, str]:
        """Return the origin as JSON values."""
        return asdict(self)


def describe_origins(origins: Iterable[Origin]) -> str:
    """Describe all origins in one line."""
    found = sorted(set(origins))
    commits = sorted({origin.commit for origin in found})
    machines = sorted({origin.machine for origin in found})
    return f"commit {' and '.join(commits)}; {' and '.join(machines)}"
