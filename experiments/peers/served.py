"""The pair over servers; the client sends a recording as fast as it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import running_pair
from experiments.common.servers.timed_client import TimedClient
from experiments.peers.arms import Run, without_specials
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode


@dataclass(frozen=True, slots=True)
class Service:
    """A draft server, seen by a client in this process.

    ``special`` are the ids that are neither text nor timestamps: first, one past the last.
    """

    client: TimedClient
    special: tuple[int, int]

    def run(self, mode: Mode, samples: Sequence[Sample], timestamps: bool) -> Run:
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for sample in samples:
            options = DecodingOptions.greedy(
                language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max
            )
            timed = self.client.transcribe(sample, options, mode)
            wall_s.append(timed.wall_s)
            tokens.append(without_specials(timed.tokens, self.special))
            total.add(timed.statistics)
        return Run(tuple(wall_s), tuple(tokens), total)


@contextmanager
def served_pair(
    target: str,
    draft: str,
    *draft_options: str,
    special: tuple[int, int],
    cores: tuple[int, int],
) -> Iterator[Service]:
    """Start the target server on the first core, the draft server on the second; yield what transcribes."""
    with running_pair(target, draft, *draft_options, cores=cores) as (_, near):
        with closing(TimedClient(near.address)) as client:
            yield Service(client, special)
