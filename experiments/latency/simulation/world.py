"""Targets, draft servers and sessions between them, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Generic, TypeVar

import simpy

from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.hosts import Clock, Host, Link, SimulatedEncoder
from experiments.latency.simulation.scripted import Cost, ScriptedModel, ScriptedWindows, script_of
from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.verifier import Verifier
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import AudioChunk, Candidates, Commit, Failed, Finished, FromTarget, Limits

Event = TypeVar("Event")
ENGLISH = DecodingOptions.greedy(language="en")
NOTHING = AudioChunk(0, bytes(2), is_last=True)  # engines start when they have audio


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of models and messages.

    Attributes
    ----------
    message_s : time of a message one way beside the link: serialisation and thread hand-over.
    handling_s : CPU time of a message at either host, which Python threads cannot overlap.
    """

    target: Cost
    draft: Cost
    target_encode_s: float = 0.0
    draft_encode_s: float = 0.0
    message_s: float = 0.0
    handling_s: float = 0.0


@dataclass(slots=True, eq=False)
class SessionResult:
    """A session's commits as its draft server received them."""

    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)
    tokens: list[int] = field(default_factory=list)  # tokens of all windows
    arrivals_s: list[float] = field(default_factory=list)  # arrival of each token
    finished_s: float | None = None

    @property
    def time_per_token_s(self) -> float:
        """Time from the first commit to the last, per token after the first commit."""
        first_s = self.arrivals_s[0]
        num_later = sum(arrival_s > first_s for arrival_s in self.arrivals_s)
        return (self.arrivals_s[-1] - first_s) / max(1, num_later)


class Server(Generic[Event]):
    """An engine's clock, encoder and host, and the receivers of its sessions' events."""

    def __init__(self, world: World, cost: Cost, encode_s: float, *, num_slots: int, is_draft: bool) -> None:
        self.clock = Clock(world.environment)
        self.encoder = SimulatedEncoder(world.environment, encode_s)
        self.host = Host[Event](world.environment, self.clock, self._deliver)
        self.receivers: dict[str, Callable[[Event], None]] = {}
        self.model = ScriptedModel(
            world.decodings, world.vocabulary, cost, self.clock, num_slots=num_slots, is_draft=is_draft
        )

    def _deliver(self, session: str, event: Event) -> None:
        if session in self.receivers:
            self.receivers[session](event)


class Target(Server[FromTarget]):
    def __init__(self, world: World, *, num_slots: int) -> None:
        costs = world.costs
        super().__init__(world, costs.target, costs.target_encode_s, num_slots=num_slots, is_draft=False)
        self.verifier = Verifier(
            self.model,
            executor=self.encoder,
            clock=self.clock,
            wake=self.host.wake,
            limits=Limits(max_sessions=num_slots),
            plan=lambda options: ScriptedWindows(world.decodings, script_of(options)),
        )
        self.host.start(self.verifier)


class DraftServer(Server[Drafted | Failed]):
    def __init__(self, world: World, *, num_slots: int) -> None:
        costs = world.costs
        super().__init__(world, costs.draft, costs.draft_encode_s, num_slots=num_slots, is_draft=True)
        self.drafter = Drafter(
            self.model,
            executor=self.encoder,
            clock=self.clock,
            wake=self.host.wake,
            follow=lambda _, options: ScriptedWindows(world.decodings, script_of(options)),
        )
        self.host.start(self.drafter)


@dataclass
class World:
    """Environment, texts, costs and links that all simulated parts share.

    Parameters
    ----------
    one_way_s : returns the delay of a message; called for each.
    edit_block : edits the draft's blocks in transit, as a network or a hostile draft might.
    """

    environment: simpy.Environment
    decodings: Sequence[Decoding]
    vocabulary: Vocabulary
    costs: Costs
    one_way_s: Callable[[], float]
    edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,)

    def run_session(
        self,
        name: str,
        target: Target,
        draft_server: DraftServer,
        length: DraftLength,
        script: Sequence[int],
        options: DecodingOptions = ENGLISH,
    ) -> SessionResult:
        result = SessionResult()
        options = replace(options, initial_prompt=" ".join(map(str, script)))
        verifier, drafter = target.verifier, draft_server.drafter
        handling_s = self.costs.handling_s

        def message_s() -> float:
            return self.costs.message_s + self.one_way_s()

        up, down = Link(self.environment, message_s), Link(self.environment, message_s)

        def propose(drafted: Drafted | Failed) -> None:
            if isinstance(drafted, Failed):
                raise drafted.error
            result.statistics.observe(drafted.report)
            if drafted.candidates is not None:
                result.statistics.observe(drafted.candidates)
                draft_server.clock.spend(handling_s)
                for block in self.edit_block(drafted.candidates):
                    up.send(partial(offer, block))

        def offer(block: Candidates) -> None:
            target.host.post(partial(verifier.submit, name, block, target.clock()), handling_s)

        def answer(event: FromTarget) -> None:
            target.clock.spend(handling_s)
            down.send(lambda: follow(event))

        def follow(event: FromTarget) -> None:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                result.finished_s = self.environment.now
                target.receivers.pop(name)
                draft_server.receivers.pop(name)
                target.host.post(partial(verifier.close, name))
                draft_server.host.post(lambda: result.statistics.observe(drafter.report(name)))
                draft_server.host.post(partial(drafter.close, name))
                return
            result.statistics.observe(event)
            if isinstance(event, Commit):
                result.tokens += event.tokens
                result.arrivals_s += [self.environment.now] * len(event.tokens)
            draft_server.host.post(partial(drafter.submit, name, event), handling_s)

        def begin() -> None:
            verifier.open(name, length.mode, options)
            verifier.submit(name, NOTHING)

        target.receivers[name] = answer
        draft_server.receivers[name] = propose
        if length.mode.drafts:
            credit = verifier.limits.max_ahead_tokens
            draft_server.host.post(lambda: drafter.open(name, length, options, max_ahead_tokens=credit))
            draft_server.host.post(partial(drafter.submit, name, NOTHING))
        up.send(lambda: target.host.post(begin))  # the draft begins before the target has the audio
        return result

    def expected(self, script: Sequence[int]) -> list[int]:
        return [token for index in script for token in self.decodings[index].tokens]


def jittered(one_way_s: float, jitter_s: float, seed: int) -> Callable[[], float]:
    """Return the delay of a link: constant plus exponential queueing with mean ``jitter_s``."""
    random = Random(seed)
    return lambda: one_way_s + (random.expovariate(1 / jitter_s) if jitter_s else 0.0)


def simulate_session(
    decodings: Sequence[Decoding],
    vocabulary: Vocabulary,
    costs: Costs,
    length: DraftLength,
    *,
    round_trip_s: float,
    jitter_s: float = 0.0,
    script: Sequence[int] | None = None,
    seed: int = 0,
    options: DecodingOptions = ENGLISH,
    edit_block: Callable[[Candidates], Sequence[Candidates]] = lambda block: (block,),
) -> SessionResult:
    """Run one session alone on target and draft server; raise if its text differs."""
    environment = simpy.Environment()
    way = jittered(round_trip_s / 2, jitter_s, seed)
    world = World(environment, decodings, vocabulary, costs, way, edit_block)
    script = list(range(len(decodings))) if script is None else script
    target, draft_server = Target(world, num_slots=1), DraftServer(world, num_slots=1)
    result = world.run_session("0", target, draft_server, length, script, options=options)
    environment.run()
    if result.finished_s is None:
        raise RuntimeError(f"Draft and target are in a deadlock ({length}, {round_trip_s:g} s).")
    if result.tokens != world.expected(script):
        raise RuntimeError(f"The text is not the target's ({length}, {round_trip_s:g} s).")
    return result


def simulate_together(
    decodings: Sequence[Decoding],
    vocabulary: Vocabulary,
    costs: Costs,
    length: DraftLength,
    *,
    num_sessions: int,
    per_draft_server: int,
    num_windows: int,
    round_trip_s: float,
    jitter_s: float = 0.0,
    seed: int = 0,
) -> float:
    """Return tokens per second of many sessions on one target, until the first one ends.

    Each session has its own windows; raise if a text differs from the target's.
    """
    environment = simpy.Environment()
    world = World(environment, decodings, vocabulary, costs, jittered(round_trip_s / 2, jitter_s, seed))
    target = Target(world, num_slots=num_sessions)
    draft_servers = [
        DraftServer(world, num_slots=per_draft_server) for _ in range(0, num_sessions, per_draft_server)
    ]
    random = Random(seed)
    scripts = [random.choices(range(len(decodings)), k=num_windows) for _ in range(num_sessions)]
    result = [
        world.run_session(str(number), target, draft_servers[number // per_draft_server], length, script)
        for number, script in enumerate(scripts)
    ]
    environment.run()
    if any(one.tokens != world.expected(script) for one, script in zip(result, scripts, strict=True)):
        raise RuntimeError(f"A text is not the target's ({length}, {num_sessions} sessions).")
    end_s = min(one.finished_s or 0.0 for one in result)
    return sum(arrival_s <= end_s for one in result for arrival_s in one.arrivals_s) / end_s
