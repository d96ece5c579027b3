"""As many sessions at once as there are slots in all: each target takes what it has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_
from pathlib import Path

from experiments.common.bench.report import Bar
from experiments.fleet.crowd import Client, Outcome, not_whole, run_together
from experiments.fleet.servers import Fleet
from specwhisper.errors import ServerFull

SLOTS = (4, 3)
NUM_OVER = 3  # sessions beyond the last slot, in every second crowd


@dataclass(frozen=True, slots=True)
class Herded:
    """Outcome of sessions that opened at once.

    Attributes
    ----------
    num_full : sessions beyond the last slot that were refused for that.
    refused : what was wrong with each session for which there was a slot.
    """

    num_opened: int
    num_full: int
    refused: tuple[str, ...]


async def measure_herd(rounds: int, folder: Path) -> Herded:
    """Open as many sessions as there are slots, and then more than that, of which the rest is refused."""
    num_slots = sum(SLOTS)
    refused: list[str] = []
    num_full = 0
    async with Fleet(folder) as fleet:
        targets = [await fleet.start_target(max_sessions=slots) for slots in SLOTS]
        draft = await fleet.start_draft(*(target.address for target in targets))
        await Client(folder, length_s=1.0).run(draft.address)  # after it the draft model is in place
        for num_over in (0, NUM_OVER) * rounds:
            clients = [
                Client(folder, number, length_s=30.0, resume_timeout_s=0)
                for number in range(num_slots + num_over)
            ]
            full, others = refusals(await run_together(clients, draft.address))
            num_full += min(num_over, len(full))
            refused += [*full[num_over:], *others]
    return Herded(2 * rounds * num_slots, num_full, tuple(refused))


def refusals(outcomes: Sequence[Outcome]) -> tuple[list[str], list[str]]:
    """Describe the sessions that found no slot, and those with which anything else was wrong."""
    is_full = [outcome.error.startswith(f"{ServerFull.__name__}:") for outcome in outcomes]
    return (
        [str(outcome) for outcome in compress(outcomes, is_full)],
        not_whole(compress(outcomes, map(not_, is_full))),
    )


def bars(herded: Herded) -> list[Bar]:
    """Hold the sessions against what is promised."""
    slots = " + ".join(map(str, SLOTS))
    return [
        Bar(
            f"{sum(SLOTS)} or more sessions at once for {slots} slots: refused while there was a slot",
            len(herded.refused),
            1,
            f"{len(herded.refused)} of {herded.num_opened}; {herded.num_full} beyond the last slot",
        )
    ]
