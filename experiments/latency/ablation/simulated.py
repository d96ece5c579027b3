"""Simulate what a mechanism gains."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from experiments.common.replay.trace import Decoding
from experiments.latency.ablation.mechanisms import MECHANISMS
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MS = 1e-3
NUM_WINDOWS = 4  # per session, where there are many


@dataclass(frozen=True, slots=True)
class Place:
    """Machines and their sessions.

    Attributes
    ----------
    num_sessions : on one target; one alone is followed from its first commit to its last.
    per_draft_server : sessions that share a draft server.
    """

    costs: Costs
    num_sessions: int = 1
    per_draft_server: int = 1

    def time_s(
        self,
        decodings: Sequence[Decoding],
        vocabulary: Vocabulary,
        mode: Mode,
        round_trip_s: float,
        seed: int,
        *,
        without: str | None = None,
    ) -> float:
        """Return the seconds per token; of a crowd, those of all its sessions together.

        Parameters
        ----------
        without : name of the mechanism that is off.
        """
        length = DraftLength(mode, None)
        with nullcontext() if without is None else MECHANISMS[without].switched_off():
            if self.num_sessions == 1:
                return simulate_session(
                    decodings, vocabulary, self.costs, length, round_trip_s=round_trip_s, seed=seed
                ).time_per_token_s
            return 1 / simulate_together(
                decodings,
                vocabulary,
                self.costs,
                length,
                num_sessions=self.num_sessions,
                per_draft_server=self.per_draft_server,
                num_windows=NUM_WINDOWS,
                round_trip_s=round_trip_s,
                seed=seed,
            )


LAPTOP = Cost(3 * MS, 0.0, 0.3 * MS)  # whisper-tiny in int8
H200 = Cost(2.7 * MS, 0.005 * MS, 0.05 * MS)  # large-v3: 2.75 ms a token by sglang-omni's measurement
PLACES = {
    # base in float32 and tiny.en in int8, a core each: docs/performance.md
    "one session, CPU cores": Place(Costs(Cost(16.8 * MS, 0.9 * MS), Cost(5.6 * MS), message_s=0.8 * MS)),
    "eight sessions, CPU cores": Place(
        Costs(Cost(5 * MS, 0.9 * MS, 8 * MS), Cost(3 * MS, 0.0, 2.6 * MS), handling_s=0.1 * MS), 8, 4
    ),
    "one session, H200 and laptop": Place(Costs(H200, LAPTOP, message_s=0.2 * MS)),
    "32 sessions, H200 and laptops": Place(Costs(H200, LAPTOP, handling_s=0.1 * MS), 32, 1),
    "32 sessions, slower GPU and four to a draft server": Place(
        Costs(Cost(8 * MS, 0.005 * MS, 0.055 * MS), Cost(2 * MS, 0.0, 0.2 * MS), handling_s=0.1 * MS), 32, 4
    ),
}
