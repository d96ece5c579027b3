"""Simulate many speaking clients with some draft servers and targets.

Each window of a client is a session of its own, due when it has been spoken. It opens on the target with
the fewest sessions, or waits while all are full.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import simpy

from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.world import Costs, DraftServer, SessionResult, Target, World, jittered
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary

RETRY_S = 0.05
WARM_UP = 0.25  # share of the duration that is not counted
COOL_DOWN_S = 10.0  # windows due in the last seconds are not counted: they cannot be late


@dataclass(frozen=True, slots=True)
class Population:
    """Number of clients, servers and slots.

    Attributes
    ----------
    num_slots : concurrent sessions of a target.
    window_s : seconds of speech in a window: the mean time between a client's windows.
    round_trips_s : assigned to the clients in turn.
    jitter_s : jitter of every link, see :func:`jittered`.
    """

    num_clients: int
    num_draft_servers: int
    num_targets: int
    num_slots: int
    window_s: float
    round_trips_s: tuple[float, ...]
    jitter_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Lag, throughput and load of a simulation.

    Attributes
    ----------
    lag_s : 50th, 95th and 99th percentile from a window's last sample to its last token, or to the end of the
        simulation where that has not come.
    p95_by_round_trip_s : 95th percentile of the clients with each round trip.
    num_waited : windows that found every target full.
    target_use, draft_use : share of the time in forward passes and draft steps, without encoding.
    """

    num_windows: int
    num_waited: int
    lag_s: tuple[float, float, float]
    p95_by_round_trip_s: tuple[float, ...]
    tokens_per_s: float
    tokens_per_forward: float
    wasted: float
    target_use: float
    draft_use: float
    encoder_use: float


@dataclass(slots=True)
class _Spoken:
    """A window that is due; ``result`` is set when a target has accepted its session."""

    due_s: float
    link: int  # index of its client's round trip
    result: SessionResult | None = None

    def lag_s(self, now_s: float) -> float:
        """Return the time from due to its last token, or to now."""
        finished_s = self.result.finished_s if self.result else None
        return (now_s if finished_s is None else finished_s) - self.due_s


class _Crowd:
    """The running simulation."""

    def __init__(
        self,
        population: Population,
        decodings: Sequence[Decoding],
        vocabulary: Vocabulary,
        costs: Costs,
        length: DraftLength,
        seed: int,
    ) -> None:
        self.environment = simpy.Environment()
        self._ways = [
            jittered(round_trip_s / 2, population.jitter_s, seed + link)
            for link, round_trip_s in enumerate(population.round_trips_s)
        ]
        self._world = World(self.environment, decodings, vocabulary, costs, self._ways[0])
        self._population = population
        self._length = length
        self._random = Random(seed)
        self.targets = [
            Target(self._world, num_slots=population.num_slots) for _ in range(population.num_targets)
        ]
        self._draft_slots = 2 * -(-population.num_clients // population.num_draft_servers)
        self.draft_servers = [
            DraftServer(self._world, num_slots=self._draft_slots) for _ in range(population.num_draft_servers)
        ]
        self.windows: list[_Spoken] = []
        self.num_waited = 0

    def client(self, number: int) -> Generator[simpy.Event, Any, None]:
        """Start a session for each window that the client speaks."""
        yield self.environment.timeout(self._random.uniform(0, self._population.window_s))
        for window in range(1_000_000):
            self.environment.process(self._window(f"{number}.{window}", number))
            yield self.environment.timeout(self._population.window_s * self._random.uniform(0.8, 1.2))

    def _window(self, name: str, client: int) -> Generator[simpy.Event, Any, None]:
        window = _Spoken(self.environment.now, client % len(self._ways))
        self.windows.append(window)
        draft_server = self.draft_servers[client % len(self.draft_servers)]
        target = self._roomiest()
        self.num_waited += target is None
        while target is None or len(draft_server.receivers) == self._draft_slots:
            yield self.environment.timeout(RETRY_S)
            target = self._roomiest()
        place = self._random.randrange(len(self._world.decodings))
        way = self._ways[window.link]
        window.result = self._world.run_session(name, target, draft_server, self._length, [place], way)

    def _roomiest(self) -> Target | None:
        """Return the target with the fewest sessions, opening ones included; ``None`` if all are full."""
        target = min(self.targets, key=lambda target: len(target.receivers))
        return target if len(target.receivers) < self._population.num_slots else None


def simulate_population(
    population: Population,
    decodings: Sequence[Decoding],
    vocabulary: Vocabulary,
    costs: Costs,
    length: DraftLength,
    *,
    duration_s: float,
    seed: int = 0,
) -> Outcome:
    """Simulate clients for a while; windows due at the beginning or end are not counted."""
    crowd = _Crowd(population, decodings, vocabulary, costs, length, seed)
    for number in range(population.num_clients):
        crowd.environment.process(crowd.client(number))
    crowd.environment.run(until=duration_s)
    first_s, last_s = WARM_UP * duration_s, duration_s - COOL_DOWN_S
    counted = [one for one in crowd.windows if first_s <= one.due_s <= last_s]
    by_link_s = [
        [one.lag_s(duration_s) for one in counted if one.link == link]
        for link in range(len(population.round_trips_s))
    ]
    statistics = [one.result.statistics for one in crowd.windows if one.result]
    num_tokens = sum(one.num_committed for one in statistics)
    num_forwards = sum(one.num_forwards for one in statistics)
    num_drafted = sum(one.num_drafted for one in statistics)
    p50, p95, p99 = _quantiles(list(chain(*by_link_s)), (0.5, 0.95, 0.99), otherwise=duration_s)
    return Outcome(
        num_windows=len(counted),
        num_waited=crowd.num_waited,
        lag_s=(p50, p95, p99),
        p95_by_round_trip_s=tuple(
            _quantiles(lags_s, (0.95,), otherwise=duration_s)[0] for lags_s in by_link_s
        ),
        tokens_per_s=num_tokens / duration_s,
        tokens_per_forward=num_tokens / num_forwards if num_forwards else 0.0,
        wasted=sum(one.num_wasted for one in statistics) / num_drafted if num_drafted else 0.0,
        target_use=sum(t.host.busy_s for t in crowd.targets) / duration_s / len(crowd.targets),
        draft_use=sum(d.host.busy_s for d in crowd.draft_servers) / duration_s / len(crowd.draft_servers),
        encoder_use=sum(t.encoder.busy_s for t in crowd.targets) / duration_s / len(crowd.targets),
    )


def _quantiles(values: Sequence[float], shares: Sequence[float], *, otherwise: float) -> list[float]:
    """Return quantiles, or ``otherwise`` for no values."""
    return list(np.quantile(values, shares).tolist()) if values else [otherwise] * len(shares)
