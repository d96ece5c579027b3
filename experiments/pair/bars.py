"""The bars that a demo pair must meet to err like a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.bench.report import Bar

TARGET_WER = {"noisy": 0.08, "clean": 0.03}
DRAFT_WER = 0.20
ACCEPTANCE = (0.85, 0.92)
STEP = 1 / 5  # of the target's, for a draft named tiny
MEGABYTES = 30
KINDS = {"noisy": "packed", "clean": "packed-clean"}  # and their names in metrics.json


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """Figures of full windows, by kind: ``noisy`` or ``clean``.

    A kind or a draft that was not measured is absent.
    """

    target_wer: Mapping[str, float]
    draft_wer: Mapping[str, float]
    acceptance: Mapping[str, float]


def recorded_figures(metrics: Path, drafts: Mapping[str, str]) -> WindowFigures:
    """Read the figures of an evaluation from ``metrics.json``, as far as it has them.

    Parameters
    ----------
    drafts : the name of each draft in that file, by its name here.
    """
    content: dict[str, Any] = json.loads(metrics.read_text(encoding="utf-8"))

    def rates(model: str) -> dict[str, float]:
        found = content[model]["wer"]
        return {kind: found[name]["wer"] for kind, name in KINDS.items() if name in found}

    accepted = {own: content[name]["acceptance"].get(KINDS["noisy"]) for own, name in drafts.items()}
    wer = {own: rates(name).get("noisy") for own, name in drafts.items()}
    return WindowFigures(
        rates("target"),
        {name: value for name, value in wer.items() if value is not None},
        {name: value for name, value in accepted.items() if value is not None},
    )


def find_bars(
    windows: WindowFigures, steps: Mapping[str, float], num_bytes: int, drafts: Mapping[str, str]
) -> tuple[list[Bar], list[str]]:
    """Return the bars of what was measured, and the names of those that were not.

    Parameters
    ----------
    steps : each draft's step over the target's.
    drafts : how each draft is called in a bar.
    """
    bars: list[Bar] = []
    absent: list[str] = []

    def add(name: str, value: float | None, bound: float, shown: str = "{:.1%}") -> None:
        if value is None:
            absent.append(name)
        else:
            bars.append(Bar(name, value, bound, shown.format(value)))

    for kind, bound in TARGET_WER.items():
        add(f"WER of the target on full {kind} windows", windows.target_wer.get(kind), bound)
    for draft, title in drafts.items():
        add(f"WER of {title} alone on full noisy windows", windows.draft_wer.get(draft), DRAFT_WER)
        accepted = windows.acceptance.get(draft)
        refused = None if accepted is None else 1 - accepted
        add(f"tokens of {title} that the target refuses", refused, 1 - ACCEPTANCE[0])
        add(f"tokens of {title} that the target accepts", accepted, ACCEPTANCE[1])
    for draft, title in drafts.items():
        if title.endswith("tiny"):
            add(f"a step of {title} over the target's", steps.get(draft), STEP, "{:.3f}")
    add("all models on disk, MB", num_bytes / 1e6, MEGABYTES, "{:.1f}")
    return bars, absent
