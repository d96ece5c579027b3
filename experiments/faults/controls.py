"""Negative controls: each deliberate error must be found, as its own kind of violation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.common.models.scripted import END
from experiments.common.models.speech import talk
from experiments.faults.chaos import MAX_RESUME_S, Pause, Scenario, World, bars, run, server_violations
from experiments.faults.clients import FileRequest, LiveRequest
from experiments.faults.kinds import KILL
from experiments.faults.oracle import ClientLog, Violation, ViolationKind
from experiments.faults.report import Result, none
from specwhisper.types import Segment
from specwhisper_client.streaming import StreamingClient

KILLED = Scenario(0, KILL, (FileRequest(600.0, option="translated"), LiveRequest()), delay_s=0.1)

Texts = list[tuple[Segment, ...]]  # the final segments of each update that has some


def with_texts(edit: Callable[[Texts], Texts]) -> Callable[[ClientLog], ClientLog]:
    """Return a corruption of final text; ``edit`` may also add an update."""

    def corrupt(log: ClientLog) -> ClientLog:
        texts = iter(edit([update.segments for update in log.updates if update.segments]))
        updates = [replace(each, segments=next(texts)) if each.segments else each for each in log.updates]
        updates += [replace(updates[-1], segments=text) for text in texts]
        return replace(log, updates=updates)

    return corrupt


def with_update(**changes: float) -> Callable[[ClientLog], ClientLog]:
    """Return a corruption that repeats the last update with changes, and without text."""
    return lambda log: replace(log, updates=[*log.updates, replace(log.updates[-1], segments=(), **changes)])


def _altered(segment: Segment) -> Segment:
    """Replace the first letter, or add one."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")


def _unended(text: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(replace(segment, is_utterance_end=False) for segment in text)


CORRUPTIONS: dict[str, Callable[[ClientLog], ClientLog]] = {
    "with commits withdrawn": with_update(num_committed=0),
    "with audio rewound": with_update(received_s=0.0),
    "failed after all text": lambda log: replace(log, error="it ended"),
    "swapped": with_texts(lambda texts: [texts[-1], *texts[1:-1], texts[0]]),
    "duplicated": with_texts(lambda texts: [2 * texts[0], *texts[1:]]),
    "dropped": with_texts(lambda texts: [(), *texts[1:]]),
    "silent": with_texts(lambda texts: [()] * len(texts)),
    "retracted": with_texts(lambda texts: [*texts, (_altered(texts[0][0]),)]),
    "altered": with_texts(lambda texts: [(_altered(texts[0][0]), *texts[0][1:]), *texts[1:]]),
    "continued after its end": with_texts(lambda texts: [*texts, _unended(texts[-1][-1:])]),
    "unended": with_texts(lambda texts: list(map(_unended, texts))),
    "backdated": with_texts(
        lambda texts: [*texts[:-1], (*texts[-1][:-1], replace(texts[-1][-1], start_s=-1.0))]
    ),
}
OF_ANY = {
    "with commits withdrawn": ViolationKind.COMMITS_WITHDRAWN,
    "with audio rewound": ViolationKind.AUDIO_REWOUND,
    "failed after all text": ViolationKind.FAILED,
    "swapped": ViolationKind.OUT_OF_ORDER,
}
OF_RECORDING = OF_ANY | {
    "duplicated": ViolationKind.DUPLICATED,
    "dropped": ViolationKind.LOST,
    "silent": ViolationKind.LOST,
    "retracted": ViolationKind.RETRACTED,
    "altered": ViolationKind.DIFFERENT,
}
OF_LIVE = OF_ANY | {
    "duplicated": ViolationKind.REPEATED_WORDS,
    "dropped": ViolationKind.LOST_WORDS,
    "silent": ViolationKind.LOST_WORDS,
    "altered": ViolationKind.OTHER_WORDS,
    "continued after its end": ViolationKind.AFTER_END,
    "unended": ViolationKind.WRONG_ENDS,
    "backdated": ViolationKind.BACK_IN_TIME,
}


async def measure_controls(folder: Path) -> Result:
    """Make every deliberate error once."""
    # Within a window the other weights write another text; a complete one they continue, which is an error.
    # Some of the expected text is lost in either case.
    other = await run(KILLED, folder, spare_seed=1)
    no_retry = await run(KILLED, folder, resume_timeout_s=0.0)
    found: dict[str, tuple[str, Sequence[Violation]]] = {
        "a spare with other weights under the same digest": (ViolationKind.LOST, other.all_of_sessions),
        "no retry at another target": (ViolationKind.FAILED, no_retry.all_of_sessions),
    }
    quiet: list[str] = []
    async with World(KILLED, folder) as world:
        await world.run(_nothing)
    for client in world.clients:
        is_recording = isinstance(client.request, FileRequest)
        log, kind = client.log, "recording" if is_recording else "live audio"
        quiet += [f"{kind}, log unchanged: {wrong}" for wrong in client.violations()]
        for name, expected in (OF_RECORDING if is_recording else OF_LIVE).items():
            client.log = CORRUPTIONS[name](log)
            found[f"{kind}, log {name}"] = expected, client.violations()

    async with World(KILLED, folder) as world, StreamingClient(world.draft_places[0].address) as stream:
        await stream.send(talk())
        updates = aiter(stream)  # without a reference to it the session would end
        await anext(updates)
        kept = await server_violations(world, within_s=0.0)
    found["a session that stays open"] = ViolationKind.LEAKED_SLOTS, kept

    async with World(KILLED, folder, client_timeout_s=2.5) as world:  # before its clients notice
        await world.run(_stop_the_draft)
    hung = [wrong for client in world.clients for wrong in client.violations()]
    found["hung sessions"] = ViolationKind.HUNG, hung

    async with World(KILLED, folder) as world:
        await world.run(_kill_while_it_drains)
        found["a server that exits with an error"] = ViolationKind.BAD_EXIT, await server_violations(world)

    for name, (expected, violations) in found.items():
        if expected not in {wrong.kind for wrong in violations}:
            quiet.append(f"{name}: no violation is of kind '{expected}': {', '.join(map(str, violations))}")
    name, _ = Pause.FOR_SPARE.value
    late = await run(KILLED, folder, fault=_kill_before_the_spare)
    if name not in {bar.name for bar in bars([late]) if not bar.holds}:
        quiet.append(f"a spare available too late: '{name}' holds")
    bar = none("negative controls that did not trip", len(quiet), len(found) + 3)
    return Result([bar], list(found), [f"control: {line}" for line in quiet])


async def _nothing(world: World) -> None:
    pass


async def _kill_before_the_spare(world: World) -> None:
    address, world.spare.upstream = world.spare.upstream, None
    world.spare.reset()
    world.mark_fault()
    await world.victim.kill()
    await asyncio.sleep(MAX_RESUME_S + 0.5)
    world.spare.upstream = address


async def _stop_the_draft(world: World) -> None:
    world.drafts[world.draft_places[0]].signal(signal.SIGSTOP)


async def _kill_while_it_drains(world: World) -> None:
    world.victim.signal(signal.SIGSTOP)  # so that it cannot exit in between
    draining = asyncio.create_task(world.drain(world.victim))
    await asyncio.sleep(0)
    world.victim.signal(signal.SIGKILL)
    await draining
