"""Tables and bars of the head's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.ctc_head.agreement import Agreement
from experiments.ctc_head.passes import Passes
from experiments.ctc_head.timing import Arm, Times, ratio

BAR = 0.6  # of target-only's time
CANDIDATE_COST = 0.03  # of a candidate in a forward pass, over a pass without one


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a held-out set."""

    name: str
    agreement: Agreement
    passes: Passes
    times: Mapping[Arm, Times]


def print_needed(needed: Mapping[str, Mapping[float, Passes]], console: Console) -> None:
    """Print the decoding time that hints with some wrong tokens should take, by set."""
    rates = list(next(iter(needed.values())))
    table = Table("wrong tokens", *(f"{rate:.0%}" for rate in rates))
    for name, by_rate in needed.items():
        table.add_row(name, *(f"{passes.relative_time(CANDIDATE_COST):.2f}" for passes in by_rate.values()))
    console.print("Expected decoding time over target-only's, encoder apart:")
    console.print(table)


def print_result(result: Result, console: Console) -> None:
    """Print the figures of a set."""
    agreement, passes = result.agreement, result.passes
    console.print(f"\n{result.name}", style="bold")
    console.print(
        f"errors against the target's text: {agreement.tokens:.1%} of tokens, {agreement.words:.1%} of "
        f"words, {agreement.written_words:.1%} of words with case and punctuation\n"
        f"as a hint: alpha {passes.alpha:.2f}, beta {passes.beta:.2f}, {passes.passes_per_token:.2f} passes "
        f"per token, expected decoding time {passes.relative_time(CANDIDATE_COST):.2f} of target-only's",
        highlight=False,
    )
    base = result.times[Arm.TARGET_ONLY]
    table = Table("arm", "passes/token", "candidates/pass", "processor time", "time", "time without encoder")
    for arm, times in result.times.items():
        table.add_row(
            arm,
            f"{times.num_forwards / times.num_tokens:.2f}",
            f"{times.num_candidates / times.num_forwards:.1f}",
            *(
                str(ratio(ours, theirs))
                for ours, theirs in (
                    (times.cpu_s, base.cpu_s),
                    (times.wall_s, base.wall_s),
                    (times.decoding_s, base.decoding_s),
                )
            ),
        )
    console.print(table)
    share = sum(base.encode_s) / sum(base.wall_s)
    console.print(f"the encoder takes {share:.0%} of target-only's time", highlight=False)


def bars(results: Sequence[Result]) -> list[Bar]:
    """Return a bar for each set: processor time with the head over target-only's.

    Everything runs in one thread: on a quiet machine it is the time on the clock.
    """
    found = []
    for result in results:
        whole = ratio(result.times[Arm.HEAD].cpu_s, result.times[Arm.TARGET_ONLY].cpu_s)
        found.append(Bar(f"{result.name}: time with the head over target-only", whole.value, BAR, str(whole)))
    return found


def as_figures(result: Result) -> dict[str, Any]:
    """Return the figures of a set for a file."""
    return {
        "name": result.name,
        "errors": asdict(result.agreement),
        "alpha": result.passes.alpha,
        "beta": result.passes.beta,
        "passes_per_token": result.passes.passes_per_token,
        "expected_decoding_time": result.passes.relative_time(CANDIDATE_COST),
        "arms": {arm: asdict(times) for arm, times in result.times.items()},
    }
