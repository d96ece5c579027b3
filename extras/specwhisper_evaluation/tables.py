"""Lay a comparison out: tables for readers, plain values for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper_evaluation.comparison import ComparedRecording, Comparison, MethodResults
from specwhisper_evaluation.scoring import error_rates

FACTS_OF_DRAFT = (
    *("acceptance_rate", "alpha", "mean_run", "num_corrections", "num_realigned"),
    *("tokens_per_forward", "acceptance_histogram"),
)


def table_of(comparison: Comparison) -> Table:
    count = len(comparison.references)
    recordings = f"{count} recording{'s' * (count != 1)}, {comparison.duration_s:.0f} s"
    caption = f"{comparison.speed_up:.2f} times as fast; {comparison.num_identical} of {count} identical"
    if len(comparison.speculative.seconds) > 1:
        mean = "batch" if len(comparison.speculative.seconds) < count else "recording"
        caption += f"\nper {mean} {comparison.speed_up_of_batches} times: mean and 95 % interval"
    if (counts := comparison.speculative.statistics).num_judged:
        caption += f"\nalpha {counts.alpha:.1%}, mean run {counts.mean_run:.1f} tokens"
        caption += f"; {counts.num_realigned} of {counts.num_corrections} corrections realigned"
    table = Table(
        "",
        "WER",
        "CER",
        "time",
        "real-time factor",
        "accepted",
        "tokens per pass",
        title=escape(f"{comparison.model.target} with {comparison.model.draft}: {recordings}"),
        caption=escape(caption),
    )
    for results in (comparison.standard, comparison.speculative):
        rates, counts = comparison.rates(results), results.statistics
        table.add_row(
            results.name,
            f"{rates.wer:.2%}",
            f"{rates.cer:.2%}",
            f"{results.elapsed_s:.1f} s",
            f"{results.elapsed_s / comparison.duration_s:.3f}",
            _accepted(counts),
            f"{counts.tokens_per_forward:.2f}",
        )
    return table


def recordings_table(comparison: Comparison) -> Table:
    """Return a table of the recordings, as the pair transcribed them.

    The target's own word error rates have a column if any of them differs.
    """
    rows = [(each, *_wers(each, comparison.language)) for each in comparison.recordings]
    has_own_rates = any(wer != standard_wer for _, wer, standard_wer in rows)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    table.caption = (
        "alpha: right tokens, of all written after a right text; run: right ones in a row; "
        "realigned: corrections after which the draft's next token was right"
    )
    table.add_column("recording", overflow="fold")
    rates = ("WER", "WER\nalone") if has_own_rates else ("WER",)
    drafted = ("accepted", "alpha", "run", "realigned", "tokens\nper pass")
    for heading in ("audio", *rates, "speed-up", *drafted, "same"):
        table.add_column(heading, justify="right", no_wrap=True)
    for recording, wer, standard_wer in rows:
        counts = recording.statistics
        table.add_row(
            escape(recording.name),
            f"{recording.speculative.duration_s:.1f} s",
            f"{wer:.1%}",
            *([f"{standard_wer:.1%}"] if has_own_rates else []),
            f"{recording.speed_up:.2f}",
            _accepted(counts),
            *((f"{counts.alpha:.1%}", f"{counts.mean_run:.1f}") if counts.num_judged else ("", "")),
            f"{counts.num_realigned} of {counts.num_corrections}" if counts.num_corrections else "",
            f"{counts.tokens_per_forward:.2f}",
            "yes" if recording.is_identical else "no",
        )
    return table


def facts(comparison: Comparison) -> dict[str, Any]:
    return {
        "language": comparison.language,
        "duration_s": comparison.duration_s,
        "model": asdict(comparison.model),
        "speed_up": comparison.speed_up,
        "speed_up_of_batches": asdict(comparison.speed_up_of_batches),
        "num_identical": comparison.num_identical,
        "references": comparison.references,
        "standard": _facts_of_method(comparison, comparison.standard),
        "speculative": _facts_of_method(comparison, comparison.speculative),
        "recordings": [_facts_of_recording(each, comparison.language) for each in comparison.recordings],
    }


def _facts_of_method(comparison: Comparison, results: MethodResults) -> dict[str, Any]:
    return {
        "name": results.name,
        **asdict(comparison.rates(results)),
        "elapsed_s": results.elapsed_s,
        **_facts_of_draft(results.statistics),
        "batch_seconds": results.seconds,
        "texts": results.texts,
    }


def _facts_of_recording(recording: ComparedRecording, language: str) -> dict[str, Any]:
    wer, standard_wer = _wers(recording, language)
    return {
        "name": recording.name,
        "duration_s": recording.speculative.duration_s,
        "wer": wer,
        "standard_wer": standard_wer,
        "elapsed_s": recording.speculative.elapsed_s,
        "standard_elapsed_s": recording.standard.elapsed_s,
        "speed_up": recording.speed_up,
        **_facts_of_draft(recording.statistics),
        "is_identical": recording.is_identical,
    }


def _facts_of_draft(counts: SpeculationStatistics) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in FACTS_OF_DRAFT}


def _accepted(counts: SpeculationStatistics) -> str:
    return f"{counts.acceptance_rate:.1%}" if counts.num_verified else ""


def _wers(recording: ComparedRecording, language: str) -> tuple[float, float]:
    """Return the word error rates of the pair and of the target alone."""
    texts = recording.speculative.text, recording.standard.text
    wer, standard_wer = (error_rates([recording.reference], [text], language).wer for text in texts)
    return wer, standard_wer
