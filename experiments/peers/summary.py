"""From runs to times per token, error rates and bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.peers.arms import FLOAT16, FLOAT32, INT8, PRECISIONS, Arm, Part, Run, System, Taken
from specwhisper.speculation.comparison import Ratio

COLUMNS = (
    "ms per token",
    "ms per audio second",
    "/ transformers",
    "/ our target-only",
    "WER",
    "tokens/pass",
    "accepted",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm over all rounds.

    Attributes
    ----------
    token_ms : per round, wall time per token that our target commits; every arm divides by the same number.
    audio_ms : per round, wall time per second of audio.
    run : one of its runs; texts are the same in all.
    """

    arm: Arm
    token_ms: tuple[float, ...]
    audio_ms: tuple[float, ...]
    run: Run


@dataclass(frozen=True, slots=True)
class Claim:
    """One arm shall take less than ``bound`` of the time of the fastest of others."""

    ours: Arm
    theirs: tuple[Arm, ...]
    bound: float


PEERS = (System.TRANSFORMERS, System.FASTER_WHISPER, System.OPENAI_WHISPER, System.WHISPER_CPP)  # one by one
# whisper.cpp has no float32: its float16 stands beside ours.
COMPARABLE = {FLOAT32: (FLOAT32, FLOAT16), INT8: (INT8,)}


def claims() -> Iterator[Claim]:
    """Yield what is held against the figures."""
    distil = Arm(Part.DEMO, System.ONE_PROCESS_DISTIL, FLOAT32, timestamps=False)
    yield Claim(distil, (replace(distil, system=System.ASSISTED),), 1 / 1.5)
    for part, bound in ((Part.DEMO, 0.75), (Part.SHAPE, 0.9)):
        for precision, theirs in COMPARABLE.items():
            ours = Arm(part, System.ONE_PROCESS, precision, timestamps=part is Part.SHAPE)
            peers = [
                replace(ours, system=system, precision=each)
                for system, each in product(PEERS, theirs)
                if each in PRECISIONS.get(system, (FLOAT32,))
            ]
            yield Claim(ours, tuple(peers), bound)
            alone = replace(ours, system=System.TARGET_ONLY)
            yield Claim(alone, (replace(ours, system=System.FASTER_WHISPER),), 1.05)


def summarise(
    taken: Iterable[Taken], durations_s: Mapping[Part, float], num_pieces_tokens: int
) -> dict[Arm, Summary]:
    """Reduce every arm to its rounds.

    Parameters
    ----------
    durations_s : of all recordings of a part.
    num_pieces_tokens : written by every arm of a shape.
    """
    by_arm: dict[Arm, list[Run]] = defaultdict(list)
    for one in taken:
        by_arm[one.arm].append(one.run)
    found = {}
    for arm, runs in by_arm.items():
        count = num_pieces_tokens
        if arm.part is Part.DEMO:
            reference = by_arm[replace(arm, system=System.TARGET_ONLY, precision=FLOAT32)][0].statistics
            count = reference.num_committed if reference is not None else 0
        found[arm] = Summary(
            arm,
            tuple(1e3 * run.wall_s / count for run in runs),
            tuple(1e3 * run.wall_s / durations_s[arm.part] for run in runs),
            runs[0],
        )
    return found


def compare(summaries: Mapping[Arm, Summary], ours: Arm, theirs: Arm, *, seed: int) -> Ratio | None:
    """Return one arm's time over another's; ``None`` where one was not measured."""
    if ours not in summaries or theirs not in summaries:
        return None
    return ratio_of_medians(summaries[ours].token_ms, summaries[theirs].token_ms, seed=seed)


def bars(summaries: Mapping[Arm, Summary], *, seed: int) -> tuple[list[Bar], list[str]]:
    """Hold the claims against the upper ends of their intervals; name those that were not measured."""
    held, open_claims = [], []
    for claim in claims():
        measured = [arm for arm in claim.theirs if arm in summaries]
        fastest = min(measured, key=lambda arm: spread(summaries[arm].token_ms).median, default=None)
        ratio = compare(summaries, claim.ours, fastest, seed=seed) if fastest is not None else None
        if ratio is None or fastest is None:
            open_claims.append(f"{claim.ours}: time over that of {claim.theirs[0].system}: not measured")
        else:
            name = f"{claim.ours}: time over that of {fastest.system}, {fastest.precision}"
            held.append(Bar(name, ratio.high, round(claim.bound, 3), str(ratio)))
    return held, open_claims


def print_table(
    summaries: Mapping[Arm, Summary],
    missing: Mapping[Arm, str],
    error_rates: Mapping[Arm, float],
    *,
    title: str,
    seed: int,
    console: Console,
) -> None:
    """Print arms, slowest first, then those that could not be measured."""
    table = Table(title=title, title_justify="left")
    table.add_column("system", no_wrap=True)
    for heading in ("precision", *COLUMNS):
        table.add_column(heading, justify="right")
    for summary in sorted(summaries.values(), key=lambda summary: -spread(summary.token_ms).median):
        table.add_row(*_cells(summaries, summary, error_rates, seed))
    for arm, reason in missing.items():
        table.add_row(arm.system, arm.precision, reason, style="dim")
    console.print(table)


def _cells(
    summaries: Mapping[Arm, Summary], summary: Summary, error_rates: Mapping[Arm, float], seed: int
) -> Sequence[str]:
    arm, statistics = summary.arm, summary.run.statistics
    references = (
        replace(arm, system=s, precision=FLOAT32) for s in (System.TRANSFORMERS, System.TARGET_ONLY)
    )
    drafts = statistics is not None and statistics.num_verified > 0
    return (
        arm.system,
        arm.precision,
        f"{spread(summary.token_ms):.2f}",
        f"{spread(summary.audio_ms):.0f}",
        *(str(compare(summaries, arm, reference, seed=seed) or "") for reference in references),
        f"{error_rates[arm]:.1%}" if arm in error_rates else "",
        f"{statistics.tokens_per_forward:.2f}" if statistics is not None else "",
        f"{statistics.acceptance_rate:.0%}" if statistics is not None and drafts else "",
    )
