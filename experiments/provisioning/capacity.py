"""Live sessions per GPU and per core of draft servers, from the costs of their parts."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of live sessions' parts.

    Attributes
    ----------
    encode_ms : of a window, eight at a time.
    pass_ms, token_ms : of a forward pass, and of each token in it.
    engine_us, message_us : of a core of the target's process, a session and pass, and a message.
    draft_sessions_per_core : live sessions of a core of draft servers.
    """

    encode_ms: float
    pass_ms: float
    token_ms: float
    engine_us: float
    message_us: float
    draft_sessions_per_core: float


# large-v3 on one H200 as docs/gpu.md expects it; none of it is measured. Python as measured by
# experiments.crowd with 64 sessions, draft servers by experiments.light (tiny's shape, cut windows).
EXPECTED = Costs(
    encode_ms=5.0, pass_ms=0.85, token_ms=0.014, engine_us=177, message_us=59, draft_sessions_per_core=11
)


@dataclass(frozen=True, slots=True)
class Live:
    """The work that live sessions ask for.

    Attributes
    ----------
    speech : share of the time with speech.
    steps_per_s : decoding steps in a second of speech.
    passes : forward passes of a step: most of its tokens are a hint of the last step's text.
    width : tokens of a session in a pass.
    """

    speech: float = 0.8
    steps_per_s: float = 2.0
    passes: float = 4.0
    width: int = 9


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sessions of one target, by what runs out."""

    by_gpu: int
    by_python: int

    @property
    def sessions(self) -> int:
        """Sessions that neither runs out for."""
        return min(self.by_gpu, self.by_python)


def capacity(costs: Costs, live: Live, *, utilisation: float, batch: int = 32) -> Capacity:
    """Return the sessions of one target.

    Parameters
    ----------
    utilisation : share of GPU and core that may be busy, so that waits stay short.
    batch : sessions that share a forward pass.
    """
    steps_per_s = live.speech * live.steps_per_s
    pass_ms = (costs.pass_ms + batch * live.width * costs.token_ms) / batch
    gpu_ms = steps_per_s * (costs.encode_ms + live.passes * pass_ms)
    python_us = steps_per_s * live.passes * (costs.engine_us + 2 * costs.message_us)
    return Capacity(int(utilisation * 1e3 / gpu_ms), int(utilisation * 1e6 / python_us))


def num_targets(num_sessions: int, sessions_per_target: int, *, spare: int = 1) -> int:
    """Return the targets for so many sessions, and some that may be lost."""
    return math.ceil(num_sessions / sessions_per_target) + spare
