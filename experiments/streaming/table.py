"""The table: a row for each arm and condition, and the bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar, none
from experiments.streaming.arms import FULL, Measured
from experiments.streaming.measures import (
    final_after_s,
    final_words,
    num_differing,
    num_erased,
    num_repeating,
    shown_after_s,
    word_errors,
    words_of,
)
from experiments.streaming.takes import Condition

AT_MOST = 1e-9  # a value that equals the bound holds, too
NUM_TOGETHER = 4
COLUMNS = (
    *("arm", "audio", "sessions", "shown, s", "utterance final, s", "erased, stable", "erased"),
    *("last interim ≠ final", "WER", "target CPU", "draft CPU", "repeating"),
)
CAPTION = (
    "Seconds are median / 95th percentile, from the end of a word's or an utterance's sound. Erased words "
    "are per final word, CPU seconds per second of speech; the offline text is the reference of WER."
)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of some sessions together; ratios are those of sums."""

    shown_s: tuple[float, ...]  # from each word's end until it is seen
    final_s: tuple[float, ...]  # from each utterance's end until it is final
    erased_stable: float  # words of the stable part per final word
    erased: float  # all shown words per final word
    differing: float  # edits between the last open text and the final text, per final word
    word_error_rate: float  # final text against offline text
    target_cpu: float  # seconds per second of speech
    draft_cpu: float
    num_repeating: int  # updates that repeat a phrase

    def cells(self) -> list[str]:
        delays = [seconds(self.shown_s), seconds(self.final_s)]
        erased = [f"{value:.2f}" for value in (self.erased_stable, self.erased)]
        rates = [f"{value:.1%}" for value in (self.differing, self.word_error_rate)]
        cpu = [f"{value:.2f}" for value in (self.target_cpu, self.draft_cpu)]
        return [*delays, *erased, *rates, *cpu, str(self.num_repeating)]


def row_of(measured: Sequence[Measured]) -> Row:
    seen = [(one.take, one.shown) for one in measured]
    num_final = max(1, sum(len(final_words(shown)) for _, shown in seen))
    num_errors = sum(word_errors(one.take.text, one.text) for one in measured)
    speech_s = sum(take.speech_s for take, _ in seen)
    return Row(
        shown_s=tuple(s for take, shown in seen for s in shown_after_s(take.words, shown)),
        final_s=tuple(s for take, shown in seen for s in final_after_s(take.words, take.ends_s, shown)),
        erased_stable=sum(num_erased(shown, stable_only=True) for _, shown in seen) / num_final,
        erased=sum(num_erased(shown, stable_only=False) for _, shown in seen) / num_final,
        differing=sum(num_differing(shown) for _, shown in seen) / num_final,
        word_error_rate=num_errors / max(1, sum(len(words_of(take.text)) for take, _ in seen)),
        target_cpu=sum(one.target_cpu_s for one in measured) / speech_s,
        draft_cpu=sum(one.draft_cpu_s for one in measured) / speech_s,
        num_repeating=sum(num_repeating(shown) for _, shown in seen),
    )


def rows_of(measured: Iterable[Measured]) -> dict[tuple[str, str, int], Row]:
    """Return a row for each arm, condition and number of sessions in real time, and for all conditions."""
    groups: dict[tuple[str, str, int], list[Measured]] = {}
    for one in measured:
        if one.is_reference:
            groups.setdefault((one.arm, "all", 1), []).append(one)
        if one.speed == 1.0:
            groups.setdefault((one.arm, one.take.condition, one.num_sessions), []).append(one)
    return {key: row_of(found) for key, found in groups.items() if key[1] != "all" or len(found) > 1}


def other_texts(measured: Iterable[Measured]) -> tuple[list[str], int]:
    """Describe sessions of ``full`` whose text is not that of one session in real time; count the others."""
    full = [one for one in measured if one.arm == FULL]
    alone = {one.take.condition: one.text for one in full if one.is_reference}
    compared = [one for one in full if not one.is_reference]
    lines = [
        f"{one.take.condition}, {one.num_sessions} sessions, {one.speed:g} times real time: "
        f"{one.text!r}; alone in real time: {alone[one.take.condition]!r}"
        for one in compared
        if one.text != alone[one.take.condition]
    ]
    return lines, len(compared)


def find_bars(measured: Sequence[Measured]) -> list[Bar]:
    rows = rows_of(measured)
    every, together = rows[FULL, "all", 1], rows[FULL, Condition.CLEAN, NUM_TOGETHER]
    clean, two = (rows[FULL, which, 1] for which in (Condition.CLEAN, Condition.TWO_SPEAKERS))
    different, num_compared = other_texts(measured)
    repeating = sum(num_repeating(one.shown) for one in measured if one.arm == FULL)

    def delay(name: str, values: Sequence[float], share: float, bound: float) -> Bar:
        value, which = quantile(values, share), "median" if share == 0.5 else "p95"
        return Bar(f"{name}, {which}, s", value, bound + AT_MOST, f"{value:.2f} of {len(values)}")

    def number(name: str, value: float, bound: float) -> Bar:
        return Bar(name, value, bound + AT_MOST, f"{value:.3f}")

    shown, final = "shown after a word's end", "final after an utterance's end"
    return [
        delay(shown, every.shown_s, 0.5, 0.6),
        delay(shown, every.shown_s, 0.95, 1.2),
        delay(final, every.final_s, 0.5, 1.3),
        delay(final, every.final_s, 0.95, 2.0),
        number("erased words per final word, stable part", every.erased_stable, 0.15),
        number("erased words per final word, all that is shown", every.erased, 0.5),
        number("words of the last interim text other than final, clean", clean.differing, 0.06),
        number("words of the last interim text other than final, two speakers", two.differing, 0.15),
        number("word error rate against the offline text, clean", clean.word_error_rate, 0.02),
        number("target CPU per second of speech, s", every.target_cpu, 0.25),
        delay(f"{NUM_TOGETHER} sessions: {final}", together.final_s, 0.95, 3.5),
        none("updates that repeat a phrase four times", repeating),
        none("texts other than alone in real time", len(different), num_compared),
    ]


def print_rows(
    rows: Mapping[tuple[str, str, int], Row], missing: Mapping[str, str], console: Console
) -> None:
    table = Table(*COLUMNS, caption=CAPTION)
    for (arm, condition, num_sessions), row in rows.items():
        table.add_row(arm, condition, str(num_sessions), *row.cells())
    console.print(table)
    for arm, reason in missing.items():
        console.print(f"{arm}: {reason}", style="yellow", highlight=False, markup=False)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, one of the values; infinite for no values."""
    return float(np.quantile(values, share, method="inverted_cdf")) if values else float("inf")


def seconds(values: Sequence[float]) -> str:
    return f"{quantile(values, 0.5):.2f} / {quantile(values, 0.95):.2f}"
