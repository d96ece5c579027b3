"""Summarise live sessions as a table and bars."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.streaming.arms import FULL, NO_REUSE
from experiments.streaming.live_client import LiveResult
from experiments.streaming.measures import (
    drift_s_per_minute,
    final_words,
    first_texts_s,
    word_errors,
    words_changed,
)
from experiments.streaming.takes import Take

FULL_LONG = f"{FULL}, for minutes"
LONG_S = 120.0
MAX_DRIFT_S = 0.02  # per minute: 0.1 s over five minutes
COLUMNS = ("first text, s", "final p50, s", "final p95, s", "changed", "of verified", "forwards/step")
MORE_COLUMNS = ("steps/s", "target CPU", "drift, s/min", "WER")


@dataclass(frozen=True, slots=True)
class Measured:
    """A take's result on an arm; ``target_only_text`` is the target's own text in the same steps."""

    round: int
    arm: str
    take: Take
    result: LiveResult
    sessions: int = 1
    target_only_text: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of an arm over several takes.

    Attributes
    ----------
    first_s : time from the end of each utterance's first word to any text of it.
    final_s : time from the end of each word to its final text.
    changed, changed_verified : shown words that changed later, per word; with and without draft text.
    forwards_per_step, steps_per_s : forward passes of the target, and steps per second of audio.
    target_cpu : CPU time of the target per second of audio, divided by sessions.
    num_unfinished : takes that ended with text that was not final.
    drift_s_per_minute : growth of ``final_s`` in the longest takes; NaN if all are short.
    """

    first_s: tuple[float, ...]
    final_s: tuple[float, ...]
    changed: float
    changed_verified: float
    forwards_per_step: float
    steps_per_s: float
    target_cpu: float
    drift_s_per_minute: float
    word_errors: float
    num_unfinished: int = 0


def row_of(measured: Sequence[Measured]) -> Row:
    """Return the row of an arm's takes; ratios are those of sums."""
    words = [(one, final_words(one.take, one.result)) for one in measured]
    num_words = max(1, sum(len(found) for _, found in words))
    duration_s = sum(one.take.duration_s for one in measured)
    num_steps = max(1, sum(one.result.num_steps for one in measured))
    longest_s = max(one.take.duration_s for one in measured)
    return Row(
        first_s=tuple(s for one in measured for s in first_texts_s(one.take, one.result)),
        final_s=tuple(word.latency_s for _, found in words for word in found),
        changed=sum(words_changed(one.result.shown, with_draft=True) for one in measured) / num_words,
        changed_verified=sum(words_changed(one.result.shown, with_draft=False) for one in measured)
        / num_words,
        forwards_per_step=sum(one.result.num_forwards for one in measured) / num_steps,
        steps_per_s=num_steps / duration_s,
        target_cpu=sum(one.result.target_cpu_s for one in measured) / duration_s,
        drift_s_per_minute=fmean(
            drift_s_per_minute(found) for one, found in words if one.take.duration_s == longest_s
        ),
        word_errors=fmean(word_errors(one.take.words, one.result) for one in measured),
        num_unfinished=sum(not one.result.all_is_final for one in measured),
    )


def rows_of(measured: Sequence[Measured]) -> dict[tuple[str, int], Row]:
    """Return the rows by arm and number of sessions; long takes have rows of their own."""
    by_arm: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for one in measured:
        is_long = one.sessions == 1 and one.take.duration_s > LONG_S
        by_arm[FULL_LONG if is_long else one.arm, one.sessions].append(one)
    return {key: row_of(found) for key, found in by_arm.items()}


def differences(measured: Sequence[Measured]) -> list[str]:
    """Describe final texts that differ from the target's own in the same steps."""
    return [
        f"{one.arm}, {one.take.name}: {one.result.text!r}, but target-only {one.target_only_text!r}"
        for one in measured
        if one.target_only_text is not None and one.target_only_text != one.result.text
    ]


def bars(rows: dict[tuple[str, int], Row], *, step_s: float, sessions: int) -> list[Bar]:
    """Return the bars."""
    found = []
    if (full := rows.get((FULL, 1))) is not None:
        found += _bars_of(full, step_s=step_s)
        ratio = full.forwards_per_step / rows[NO_REUSE, 1].forwards_per_step
        found.append(
            Bar(
                "forward passes per step, over those without reuse of the hypothesis",
                ratio,
                0.4,
                f"{ratio:.2f}",
            )
        )
    if (long := rows.get((FULL_LONG, 1))) is not None:
        found.append(_growth(long, "a long session: "))
    if (together := rows.get((FULL, sessions))) is not None and sessions > 1:
        found += _bars_of(together, f"{sessions} sessions: ", step_s=step_s)
        found.append(_growth(together, f"{sessions} sessions: "))
    return found


def _growth(row: Row, which: str) -> Bar:
    drift = row.drift_s_per_minute
    return Bar(f"{which}growth of the time to final words, s/min", drift, MAX_DRIFT_S, f"{drift:+.3f}")


def _bars_of(row: Row, which: str = "", *, step_s: float) -> list[Bar]:
    first_s, final_s = quantile(row.first_s, 0.95), quantile(row.final_s, 0.95)
    unfinished = row.num_unfinished
    first_name = f"{which}first text after an utterance's first word, p95, s"
    return [
        Bar(first_name, first_s, 0.3 + step_s, shown(row.first_s)),
        Bar(f"{which}word final after it was spoken, p95, s", final_s, 1.5, shown(row.final_s)),
        Bar(f"{which}takes whose last words never became final", unfinished, 1, str(unfinished)),
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; infinite for no values."""
    return float(np.quantile(values, share)) if values else float("inf")


def shown(values: Sequence[float]) -> str:
    """Format 95th percentile, median and count."""
    return f"{quantile(values, 0.95):.2f} (median {quantile(values, 0.5):.2f}, {len(values)})"


def print_rows(rows: dict[tuple[str, int], Row], console: Console) -> None:
    """Print a table with a row per arm."""
    table = Table(title="Live transcription in real time", title_justify="left")
    table.add_column("arm", no_wrap=True)
    table.add_column("sessions", justify="right")
    for heading in (*COLUMNS, *MORE_COLUMNS):
        table.add_column(heading, justify="right")
    for (arm, sessions), row in rows.items():
        table.add_row(
            arm,
            str(sessions),
            f"{quantile(row.first_s, 0.5):.2f}/{quantile(row.first_s, 0.95):.2f}" if row.first_s else "",
            f"{quantile(row.final_s, 0.5):.2f}",
            f"{quantile(row.final_s, 0.95):.2f}",
            f"{row.changed:.2f}",
            f"{row.changed_verified:.2f}",
            f"{row.forwards_per_step:.1f}",
            f"{row.steps_per_s:.2f}",
            f"{row.target_cpu:.2f}",
            "" if math.isnan(row.drift_s_per_minute) else f"{row.drift_s_per_minute:+.3f}",
            f"{row.word_errors:.0%}",
        )
    console.print(table)


def facts(one: Measured) -> dict[str, Any]:
    """Return a take's raw figures as JSON values."""
    return {
        "round": one.round,
        "arm": one.arm,
        "sessions": one.sessions,
        "take": one.take.name,
        "duration_s": one.take.duration_s,
        "text": one.result.text,
        "target_only_text": one.target_only_text,
        "first_s": first_texts_s(one.take, one.result),
        "words": [(word.spoken_s, word.final_s) for word in final_words(one.take, one.result)],
        "num_changed": words_changed(one.result.shown, with_draft=True),
        "num_changed_verified": words_changed(one.result.shown, with_draft=False),
        "num_steps": one.result.num_steps,
        "num_forwards": one.result.num_forwards,
        "target_cpu_s": one.result.target_cpu_s,
        "all_is_final": one.result.all_is_final,
        "steps": [(step.start_sample, step.end_sample, step.num_forwards) for step in one.result.steps],
    }
