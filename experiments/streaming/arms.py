"""What is compared: our modes and policies on real servers, and plain transformers with the same policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from experiments.common.processes import Worker, first_two_cores, on_cores, running_server
from experiments.streaming.listening import Heard, listen
from experiments.streaming.plain import PlainTransformers
from experiments.streaming.takes import Take
from specwhisper.live import LiveOptions, StabilityPolicy
from specwhisper.types import Mode

FULL, NO_RECALL, ALIGN_ATT = "full", "full, nothing recalled", "full, align-att"
TARGET_ONLY, ONE_PROCESS, PLAIN = "target-only", "one process", "transformers"
ARMS = (FULL, NO_RECALL, ALIGN_ATT, TARGET_ONLY, ONE_PROCESS, PLAIN)
MAX_SESSIONS = 16


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers and workers of a run, already warm."""

    split: str
    one_process: str
    plain: Worker

    def hear(self, arm: str, take: Take, live: LiveOptions) -> Heard:
        """Speak a take to an arm."""
        if arm == PLAIN:
            heard: Heard = self.plain.call("listen", take, live)
            return heard
        return asyncio.run(self._listen(arm, take, live))

    def hear_together(self, takes: list[Take], live: LiveOptions, mode: Mode) -> list[Heard]:
        """Speak takes at the same time, begun within the time of a step."""

        async def together() -> list[Heard]:
            spacing_s = live.step_ms / 1000 / len(takes)
            sessions = (
                listen(self.split, take, live, mode, delay_s=number * spacing_s)
                for number, take in enumerate(takes)
            )
            return await asyncio.gather(*sessions)

        return asyncio.run(together())

    async def _listen(self, arm: str, take: Take, live: LiveOptions) -> Heard:
        server, mode = (self.one_process if arm == ONE_PROCESS else self.split), Mode.FULL
        if arm == TARGET_ONLY:
            mode = Mode.TARGET_ONLY
        if arm == NO_RECALL:
            live = replace(live, recalls=False)
        if arm == ALIGN_ATT:
            live = replace(live, policy=StabilityPolicy.ALIGN_ATT)
        return await listen(server, take, live, mode)


@contextmanager
def stage(target: str, draft: str, dtype: str = "float32") -> Iterator[Stage]:
    """Start everything: the target on one core, the draft and this program on the other."""
    first, second = first_two_cores()
    sessions = ("--max-sessions", str(MAX_SESSIONS))
    with ExitStack() as stack:
        plain = Worker(partial(PlainTransformers, target), cores=[first])
        stack.callback(plain.stop)
        server = stack.enter_context(
            running_server("target_server", "--model", target, "--dtype", dtype, *sessions, cores=[first])
        )
        draft_model = ("--draft-model", draft)
        split = stack.enter_context(
            running_server("draft_server", "--target", server, *draft_model, *sessions, cores=[second])
        )
        both = sorted({first, second})
        one_process = stack.enter_context(
            running_server("draft_server", "--target-model", target, *draft_model, cores=both)
        )
        stack.enter_context(on_cores([second]))
        yield Stage(split, one_process, plain)
