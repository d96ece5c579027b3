"""Negative controls: each deliberate error must be found, as its own kind of violation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from experiments.common.models.scripted import END
from experiments.common.models.speech import talk
from experiments.common.oracle import ClientLog, Violation, ViolationKind
from experiments.faults.chaos import Outcome, bars, run, server_violations
from experiments.faults.clients import FileRequest, LiveRequest
from experiments.faults.kinds import KILL
from experiments.faults.report import Result, none
from experiments.faults.world import MAX_RESUME_S, Pause, Scenario, World
from specwhisper.types import Segment
from specwhisper_client.streaming import StreamingClient

KILLED = Scenario(0, KILL, (FileRequest(600.0, option="translated"), LiveRequest()), delay_s=0.1)
LATE_S = MAX_RESUME_S + 0.5
HANG_TIMEOUT_S = 2.5  # until a session counts as hung
NOTHING = "nothing"

Corrupt = Callable[[ClientLog], ClientLog]


@dataclass(frozen=True, slots=True)
class Control:
    """A deliberate error, the kind of violation that must be found, and those found."""

    name: str
    expected: str
    found: tuple[str, ...]
    message: str = ""

    @property
    def has_tripped(self) -> bool:
        return self.expected in self.found

    def __str__(self) -> str:
        tripped_by = " and ".join(self.found)
        return f"{self.name}: tripped by {tripped_by} instead of {self.expected}: {self.message}"


async def measure_controls(folder: Path) -> Result:
    """Make every deliberate error once."""
    # Within a window the other weights write another text; a complete one they continue, which is an error.
    # Some of the expected text is lost in either case.
    other = await run(KILLED, folder, spare_seed=1)
    no_retry = await run(KILLED, folder, resume_timeout_s=0.0)
    controls = [
        *await corrupted_logs(folder),
        _control("a spare with other weights under the same digest", ViolationKind.LOST, _all_of(other)),
        _control("no retry at another target", ViolationKind.FAILED, _all_of(no_retry)),
        await _late_spare(folder),
        await _kept_slot(folder),
        await _hanging(folder),
        await _bad_exit(folder),
    ]
    quiet = [str(control) for control in controls if not control.has_tripped]
    bar = none("negative controls that did not trip", len(quiet), len(controls))
    return Result([bar], [asdict(control) for control in controls], quiet)


async def corrupted_logs(folder: Path) -> list[Control]:
    """Corrupt the logs of sessions that nothing has happened to."""
    found = []
    async with World(KILLED, folder) as world:
        await world.run(_nothing)
    for client in world.clients:
        is_recording = isinstance(client.request, FileRequest)
        log, kind = client.log, "recording" if is_recording else "live audio"
        found.append(_control(f"{kind}, log unchanged", NOTHING, client.violations()))
        for corrupt, expected in (OF_RECORDING if is_recording else OF_LIVE).items():
            client.log = corrupt(log)
            found.append(_control(f"{kind}, log {corrupt.__name__}", expected, client.violations()))
    return found


async def _late_spare(folder: Path) -> Control:
    """Make the spare available only after the limit."""
    short = [bar for bar in bars([await run(KILLED, folder, fault=_kill_before_the_spare)]) if not bar.holds]
    found = tuple(bar.name for bar in short) or (NOTHING,)
    name, _ = Pause.FOR_SPARE.value
    return Control("a spare available too late", name, found, "; ".join(map(str, short)))


async def _kept_slot(folder: Path) -> Control:
    """Count slots while a session holds one."""
    async with World(KILLED, folder) as world, StreamingClient(world.draft_places[0].address) as stream:
        await stream.send(talk())
        async for _ in stream:
            break
        wrong = await server_violations(world, within_s=0.0)
    return _control("a session that stays open", ViolationKind.LEAKED_SLOTS, wrong)


async def _hanging(folder: Path) -> Control:
    """Stop the draft server, and check its clients before they notice."""
    async with World(KILLED, folder, client_timeout_s=HANG_TIMEOUT_S) as world:
        await world.run(_stop_the_draft)
        found = [wrong for client in world.clients for wrong in client.violations()]
    return _control("hung sessions", ViolationKind.HUNG, found)


async def _bad_exit(folder: Path) -> Control:
    """Kill a target while it drains."""
    async with World(KILLED, folder) as world:
        await world.run(_kill_while_it_drains)
        wrong = await server_violations(world)
    return _control("a server that exits with an error", ViolationKind.BAD_EXIT, wrong)


async def _nothing(world: World) -> None:
    pass


async def _kill_before_the_spare(world: World) -> None:
    address, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    world.mark_fault()
    await world.victim.kill()
    await asyncio.sleep(LATE_S)
    world.spare.upstream = address


async def _stop_the_draft(world: World) -> None:
    world.mark_fault()
    world.drafts[world.draft_places[0]].signal(signal.SIGSTOP)


async def _kill_while_it_drains(world: World) -> None:
    world.victim.signal(signal.SIGSTOP)  # so that it cannot exit in between
    draining = asyncio.create_task(world.drain(world.victim))
    await asyncio.sleep(0)
    world.victim.signal(signal.SIGKILL)
    await draining


def _all_of(outcome: Outcome) -> list[Violation]:
    return [*outcome.violations, *(wrong for one in outcome.sessions for wrong in one.violations)]


def _control(name: str, expected: str, found: Iterable[Violation]) -> Control:
    of_kinds: dict[str, str] = {}
    for wrong in found:
        of_kinds.setdefault(str(wrong.kind), str(wrong))
    return Control(name, str(expected), tuple(of_kinds) or (NOTHING,), "; ".join(of_kinds.values()))


def duplicated(log: ClientLog) -> ClientLog:
    first, segments = _finals(log)[0]
    return _edited(log, {first: 2 * segments})


def dropped(log: ClientLog) -> ClientLog:
    first, _ = _finals(log)[0]
    return _edited(log, {first: ()})


def silent(log: ClientLog) -> ClientLog:
    return _edited(log, {at: () for at, _ in _finals(log)})


def swapped(log: ClientLog) -> ClientLog:
    (first, before), *_, (last, after) = _finals(log)
    return _edited(log, {first: after, last: before})


def retracted(log: ClientLog) -> ClientLog:
    """Add a second version of final text at the end."""
    return _appended(log, segments=(_altered(log.segments[0]),))


def altered(log: ClientLog) -> ClientLog:
    first, (segment, *others) = _finals(log)[0]
    return _edited(log, {first: (_altered(segment), *others)})


def continued_after_end(log: ClientLog) -> ClientLog:
    return _appended(log, segments=(replace(log.segments[-1], is_utterance_end=False),))


def unended(log: ClientLog) -> ClientLog:
    return _edited(
        log,
        {at: tuple(replace(each, is_utterance_end=False) for each in of_one) for at, of_one in _finals(log)},
    )


def backdated(log: ClientLog) -> ClientLog:
    """Move the last words before the first ones in time."""
    last, (*before, segment) = _finals(log)[-1]
    return _edited(log, {last: (*before, replace(segment, start_s=log.segments[0].start_s - 1.0))})


def commits_withdrawn(log: ClientLog) -> ClientLog:
    return _appended(log, num_committed=0)


def audio_rewound(log: ClientLog) -> ClientLog:
    return _appended(log, received_s=0.0)


def failed(log: ClientLog) -> ClientLog:
    """End with an error after all text."""
    return replace(log, error="it ended")


OF_ANY: Mapping[Corrupt, ViolationKind] = {
    commits_withdrawn: ViolationKind.COMMITS_WITHDRAWN,
    audio_rewound: ViolationKind.AUDIO_REWOUND,
    swapped: ViolationKind.OUT_OF_ORDER,
    failed: ViolationKind.FAILED,
}
OF_RECORDING: Mapping[Corrupt, ViolationKind] = {
    **OF_ANY,
    duplicated: ViolationKind.DUPLICATED,
    dropped: ViolationKind.LOST,
    silent: ViolationKind.LOST,
    retracted: ViolationKind.RETRACTED,
    altered: ViolationKind.DIFFERENT,
}
OF_LIVE: Mapping[Corrupt, ViolationKind] = {
    **OF_ANY,
    duplicated: ViolationKind.REPEATED_WORDS,
    dropped: ViolationKind.LOST_WORDS,
    silent: ViolationKind.LOST_WORDS,
    altered: ViolationKind.OTHER_WORDS,
    continued_after_end: ViolationKind.AFTER_END,
    unended: ViolationKind.WRONG_ENDS,
    backdated: ViolationKind.BACK_IN_TIME,
}


def _finals(log: ClientLog) -> list[tuple[int, tuple[Segment, ...]]]:
    """Return the updates with final text: indices and segments."""
    return [(at, update.segments) for at, update in enumerate(log.updates) if update.segments]


def _edited(log: ClientLog, segments: Mapping[int, tuple[Segment, ...]]) -> ClientLog:
    """Replace the segments of some updates."""
    updates = [
        replace(update, segments=segments.get(at, update.segments)) for at, update in enumerate(log.updates)
    ]
    return replace(log, updates=updates)


def _appended(log: ClientLog, **changes: object) -> ClientLog:
    """Repeat the last update with changes, by default without its segments."""
    return replace(log, updates=[*log.updates, replace(log.updates[-1], **{"segments": ()} | changes)])


def _altered(segment: Segment) -> Segment:
    """Replace the first letter, or add one."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")
