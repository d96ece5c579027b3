"""From runs to times per token, ratios, error rates and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import BUNDLED, Sample
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import spread
from experiments.peers.arms import FLOAT32, INT8, OURS, Arm, Run, System, precisions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper_client.cli.advice import Ratio
from specwhisper_evaluation.comparison import error_rates
from specwhisper_evaluation.references import from_folder

COLUMNS = "ms per token", "/ transformers", "/ target-only", "WER", "tokens/pass", "accepted", "text"
COMPARED = (*OURS, System.TRANSFORMERS, System.ASSISTED)  # faster-whisper has a text of its own
Runs = Mapping[Arm, Sequence[Run]]


@dataclass(frozen=True, slots=True)
class Claim:
    """One arm shall take less than ``bound`` of the time of the fastest of others."""

    ours: Arm
    theirs: tuple[Arm, ...]
    bound: float


def claims() -> Iterator[Claim]:
    """Yield what is held against the figures."""
    for precision in (FLOAT32, INT8):
        ours = Arm(System.ONE_PROCESS, precision, timestamps=False)
        others = [
            replace(ours, system=system)
            for system in (System.TRANSFORMERS, System.FASTER_WHISPER)
            if precision in precisions(system)
        ]
        yield Claim(ours, tuple(others), 0.75)
        alone = replace(ours, system=System.TARGET_ONLY)
        yield Claim(alone, (replace(ours, system=System.FASTER_WHISPER),), 1.05)
    distilled = Arm(System.ONE_PROCESS_DISTIL, FLOAT32, timestamps=False)
    yield Claim(distilled, (replace(distilled, system=System.ASSISTED),), 1 / 1.5)
    for timestamps in (True, False):
        plain = Arm(System.TRANSFORMERS, FLOAT32, timestamps)
        for system, bound in ((System.ONE_PROCESS, 1.0), (System.FULL, 0.4)):
            yield Claim(replace(plain, system=system), (plain,), bound)


def ratio(runs: Runs, ours: Arm, theirs: Arm) -> Ratio | None:
    """Return one arm's time over another's, each pair of one recording in one round; of batches, per round.

    ``None`` where one was not measured.
    """
    if ours not in runs or theirs not in runs:
        return None
    times_s = [[s for run in runs[arm] for s in run.wall_s] for arm in (ours, theirs)]
    if len(times_s[0]) != len(times_s[1]):
        times_s = [_seconds(runs[arm]) for arm in (ours, theirs)]
    return Ratio.paired(*times_s)


def find_bars(runs: Runs) -> tuple[list[Bar], list[str]]:
    """Hold the claims against the upper ends of their intervals; name those that were not measured."""
    held, open_claims = [], []
    for claim in claims():
        measured = [arm for arm in claim.theirs if arm in runs]
        fastest = min(measured, key=lambda arm: spread(_seconds(runs[arm])).median, default=claim.theirs[0])
        name = f"{claim.ours}: time over that of {fastest.system}, {fastest.precision}"
        if (found := ratio(runs, claim.ours, fastest)) is None:
            open_claims.append(f"{name}: not measured")
        else:
            held.append(Bar(name, found.high, round(claim.bound, 3), str(found)))
    return held, open_claims


def differences(runs: Runs) -> dict[Arm, str]:
    """Describe each text that is not target-only's."""
    found = {}
    for arm, of_arm in runs.items():
        alone = runs.get(replace(arm, system=System.TARGET_ONLY))
        if arm.system in COMPARED and alone is not None:
            if any(run.tokens != alone[0].tokens for run in of_arm):
                found[arm] = "the text is not that of target-only"
    return found


def is_broken(arm: Arm) -> bool:
    """Return whether a difference breaks a promise.

    In reduced precision a pass over several tokens may round differently; assisted generation promises
    nothing.
    """
    return arm.precision != INT8 and arm.system is not System.ASSISTED


def word_error_rates(runs: Runs, samples: Sequence[Sample], vocabulary: Vocabulary) -> dict[Arm, float]:
    """Score texts against what is said in the bundled recordings; nothing of others."""
    said = {reference.name: reference.text for reference in from_folder(BUNDLED)}
    if any(sample.name not in said for sample in samples):
        return {}
    references = [said[sample.name] for sample in samples]
    return {
        arm: error_rates(references, [vocabulary.decode(text) for text in of_arm[0].tokens], "en").wer
        for arm, of_arm in runs.items()
    }


def print_table(
    runs: Runs,
    different: Mapping[Arm, str],
    rates: Mapping[Arm, float],
    *,
    title: str,
    console: Console,
) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("system", no_wrap=True)
    for heading in ("precision", *COLUMNS):
        table.add_column(heading, justify="right")
    for arm in sorted(runs, key=lambda arm: -spread(_seconds(runs[arm])).median):
        plain, alone = (
            replace(arm, system=system, precision=FLOAT32)
            for system in (System.TRANSFORMERS, System.TARGET_ONLY)
        )
        # All arms divide by what target-only commits: what an arm computes beyond it is its own loss.
        num_tokens = runs[alone][0].statistics.num_committed
        statistics = runs[arm][0].statistics
        table.add_row(
            arm.system,
            arm.precision,
            f"{spread([1e3 * seconds / num_tokens for seconds in _seconds(runs[arm])]):.2f}",
            *(str(ratio(runs, arm, reference) or "") for reference in (plain, alone)),
            f"{rates[arm]:.1%}" if arm in rates else "",
            f"{statistics.tokens_per_forward:.2f}" if statistics.num_forwards else "",
            f"{statistics.acceptance_rate:.0%}" if statistics.num_verified else "",
            "differs" if arm in different else "same" if arm.system in OURS else "",
        )
    console.print(table)


def _seconds(runs: Sequence[Run]) -> list[float]:
    return [sum(run.wall_s) for run in runs]
