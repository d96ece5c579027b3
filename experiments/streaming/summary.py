"""From what was heard to a table and bars."""

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
from experiments.streaming.arms import FULL, NO_RECALL
from experiments.streaming.listening import Heard
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
MAX_DRIFT_S = 0.02  # a minute: over five of them a tenth of a second
COLUMNS = ("first text, s", "final p50, s", "final p95, s", "changed", "of verified", "passes/step")
MORE_COLUMNS = ("steps/s", "target CPU", "drift, s/min", "WER")


@dataclass(frozen=True, slots=True)
class Taken:
    """A take as an arm heard it; ``text_alone`` is what the target alone wrote in the same steps."""

    round: int
    arm: str
    take: Take
    heard: Heard
    sessions: int = 1
    text_alone: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of an arm over several takes.

    Attributes
    ----------
    first_s : from the end of an utterance's first word to any text of it, of each utterance.
    final_s : from the end of a word to its final text, of each word.
    changed, changed_verified : words that were shown and became others, per word; with and without drafts.
    passes_per_step, steps_per_s : of the target, and of audio.
    target_cpu : processor time of the target per time of audio, shared among sessions: its real-time factor.
    num_unfinished : takes behind which a word was still not final.
    drift_s_per_minute : growth of ``final_s``, of the longest takes; not a number where all are short.
    """

    first_s: tuple[float, ...]
    final_s: tuple[float, ...]
    changed: float
    changed_verified: float
    passes_per_step: float
    steps_per_s: float
    target_cpu: float
    drift_s_per_minute: float
    word_errors: float
    num_unfinished: int = 0


def row_of(taken: Sequence[Taken]) -> Row:
    """Reduce an arm's takes; ratios are of sums."""
    words = [(one, final_words(one.take, one.heard)) for one in taken]
    num_words = max(1, sum(len(found) for _, found in words))
    duration_s = sum(one.take.duration_s for one in taken)
    num_steps = max(1, sum(one.heard.num_steps for one in taken))
    longest_s = max(one.take.duration_s for one in taken)
    return Row(
        first_s=tuple(s for one in taken for s in first_texts_s(one.take, one.heard)),
        final_s=tuple(word.latency_s for _, found in words for word in found),
        changed=sum(words_changed(one.heard.shown, with_draft=True) for one in taken) / num_words,
        changed_verified=sum(words_changed(one.heard.shown, with_draft=False) for one in taken) / num_words,
        passes_per_step=sum(one.heard.num_forwards for one in taken) / num_steps,
        steps_per_s=num_steps / duration_s,
        target_cpu=sum(one.heard.target_cpu_s for one in taken) / duration_s,
        drift_s_per_minute=fmean(
            drift_s_per_minute(found) for one, found in words if one.take.duration_s == longest_s
        ),
        word_errors=fmean(word_errors(one.take.words, one.heard) for one in taken),
        num_unfinished=sum(not one.heard.all_is_final for one in taken),
    )


def rows_of(taken: Sequence[Taken]) -> dict[tuple[str, int], Row]:
    """Reduce everything, by arm and sessions at once; what one arm heard for minutes stands apart."""
    by_arm: dict[tuple[str, int], list[Taken]] = defaultdict(list)
    for one in taken:
        is_long = one.sessions == 1 and one.take.duration_s > LONG_S
        by_arm[FULL_LONG if is_long else one.arm, one.sessions].append(one)
    return {key: row_of(found) for key, found in by_arm.items()}


def differences(taken: Sequence[Taken]) -> list[str]:
    """Tell which final texts are not what the target alone wrote in the same steps."""
    return [
        f"{one.arm}, {one.take.name}: {one.heard.text!r}, but alone {one.text_alone!r}"
        for one in taken
        if one.text_alone is not None and one.text_alone != one.heard.text
    ]


def bars(rows: dict[tuple[str, int], Row], *, step_s: float, sessions: int) -> list[Bar]:
    """Hold the figures against what the issue promises."""
    found = []
    if (full := rows.get((FULL, 1))) is not None:
        found += _bars_of(full, step_s=step_s)
        ratio = full.passes_per_step / rows[NO_RECALL, 1].passes_per_step
        found.append(Bar("passes per step over those without recalling", ratio, 0.4, f"{ratio:.2f}"))
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
    """Return a quantile; infinite of nothing."""
    return float(np.quantile(values, share)) if values else float("inf")


def shown(values: Sequence[float]) -> str:
    """Write 95th percentile and median."""
    return f"{quantile(values, 0.95):.2f} (median {quantile(values, 0.5):.2f}, {len(values)})"


def print_rows(rows: dict[tuple[str, int], Row], console: Console) -> None:
    """Print a line per arm."""
    table = Table(title="Live, paced in real time", title_justify="left")
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
            f"{row.passes_per_step:.1f}",
            f"{row.steps_per_s:.2f}",
            f"{row.target_cpu:.2f}",
            "" if math.isnan(row.drift_s_per_minute) else f"{row.drift_s_per_minute:+.3f}",
            f"{row.word_errors:.0%}",
        )
    console.print(table)


def facts(one: Taken) -> dict[str, Any]:
    """Return the raw figures of a take."""
    return {
        "round": one.round,
        "arm": one.arm,
        "sessions": one.sessions,
        "take": one.take.name,
        "duration_s": one.take.duration_s,
        "text": one.heard.text,
        "text_alone": one.text_alone,
        "first_s": first_texts_s(one.take, one.heard),
        "words": [(word.spoken_s, word.final_s) for word in final_words(one.take, one.heard)],
        "num_changed": words_changed(one.heard.shown, with_draft=True),
        "num_changed_verified": words_changed(one.heard.shown, with_draft=False),
        "num_steps": one.heard.num_steps,
        "num_forwards": one.heard.num_forwards,
        "target_cpu_s": one.heard.target_cpu_s,
        "all_is_final": one.heard.all_is_final,
        "steps": [(step.start_sample, step.end_sample, step.num_forwards) for step in one.heard.steps],
    }
