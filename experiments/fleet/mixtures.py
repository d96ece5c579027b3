"""Programs of the previous release beside this one's: in every mixture each session has its text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations, product
from pathlib import Path

from experiments.common.bench.report import Bar
from experiments.common.serve_scripted import TargetSettings
from experiments.common.servers.clients import recording_file
from experiments.fleet.crowd import Client, not_whole, run_together, text_alone
from experiments.fleet.previous import PreviousRelease
from experiments.fleet.servers import Fleet

NUM_TOGETHER = 3  # sessions of this release's client at once
LENGTH_S, MOVED_LENGTH_S = 30.0, 120.0


class Version(StrEnum):
    """Whose code a program runs."""

    OLD = "previous release"
    NEW = "this release"


Mixture = tuple[Version, Version, Version]  # client, draft server, target
MIXTURES: list[Mixture] = [each for each in product(Version, repeat=3) if Version.OLD in each]


@dataclass(frozen=True, slots=True)
class Together:
    """Outcome of sessions in mixtures of two releases.

    Attributes
    ----------
    num_moved : sessions whose target was lost while one of the other release had room.
    wrong : what was wrong with each session that failed, or whose text is not the target's.
    """

    num_sessions: int
    num_moved: int
    wrong: tuple[str, ...]


class _Programs:
    """Servers and clients of both releases."""

    def __init__(self, fleet: Fleet, previous: PreviousRelease) -> None:
        self._fleet = fleet
        self._previous = previous

    async def start_target(self, version: Version) -> str:
        if version is Version.OLD:
            return await self._previous.start_target()
        return (await self._fleet.start_target(weights=TargetSettings().weights)).address  # as the other's

    async def start_draft(self, version: Version, target: str) -> str:
        if version is Version.OLD:
            return await self._previous.start_draft(target)
        return (await self._fleet.start_draft(target)).address

    async def run_clients(self, version: Version, draft: str) -> tuple[int, list[str]]:
        """Run clients at a draft server; return how many, and what was wrong with them."""
        folder = self._fleet.folder
        if version is Version.NEW:
            clients = [Client(folder, number, length_s=LENGTH_S) for number in range(NUM_TOGETHER)]
            return len(clients), not_whole(await run_together(clients, draft))
        text, error = await self._previous.transcribe(recording_file(LENGTH_S, 0, folder), draft)
        is_whole = not error and text.split() == text_alone(LENGTH_S, 0).split()
        return 1, [] if is_whole else [error or f"another text: {text!r}"]


async def measure_mixtures(rounds: int, folder: Path) -> Together:
    """Run sessions in every mixture, and move some from a target of one release to one of the other."""
    num_sessions, wrong = 0, list[str]()
    async with Fleet(folder) as fleet, PreviousRelease(folder / "previous-release") as previous:
        programs = _Programs(fleet, previous)
        targets = {version: await programs.start_target(version) for version in Version}
        pairs = list(product(Version, repeat=2))
        drafts = {pair: await programs.start_draft(pair[0], targets[pair[1]]) for pair in pairs}
        for client, draft, target in MIXTURES * rounds:
            num, found = await programs.run_clients(client, drafts[draft, target])
            num_sessions += num
            wrong += [f"{client} -> {draft} -> {target}: {line}" for line in found]
        moves = list(permutations(Version)) * rounds
        for first, second in moves:
            found = await _move(fleet, targets[first], targets[second])
            wrong += [f"from {first} to {second}: {line}" for line in found]
    num_moved = len(moves) * NUM_TOGETHER
    return Together(num_sessions + num_moved, num_moved, tuple(wrong))


async def _move(fleet: Fleet, first: str, second: str) -> list[str]:
    """Lose the target of running sessions while another one has room; return what was wrong with them."""
    places = [await fleet.place() for _ in range(2)]
    places[0].upstream = first
    draft = await fleet.start_draft(*(place.address for place in places))
    clients = [Client(fleet.folder, number, length_s=MOVED_LENGTH_S) for number in range(NUM_TOGETHER)]
    running = asyncio.create_task(run_together(clients, draft.address))
    await asyncio.gather(*(client.has_begun.wait() for client in clients))
    places[0].upstream, places[1].upstream = None, second
    places[0].reset()
    return not_whole(await running)


def bars(together: Together) -> list[Bar]:
    """Hold the sessions against what is promised."""
    return [
        Bar(
            f"{len(MIXTURES)} mixtures with the previous release: sessions that failed, or got another text",
            len(together.wrong),
            1,
            f"{len(together.wrong)} of {together.num_sessions}, {together.num_moved} moved",
        )
    ]
