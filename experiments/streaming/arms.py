"""What is compared: our modes and policies on real servers, and plain transformers with the same policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from experiments.common.servers.processes import Server, Worker, first_two_cores, on_cores, running_process
from experiments.common.servers.usage import cpu_s
from experiments.streaming.listening import Heard, listen
from experiments.streaming.plain import PlainTransformers
from experiments.streaming.takes import Take
from specwhisper.live import LiveOptions, StabilityPolicy
from specwhisper.types import Mode

FULL, NO_RECALL, ALIGN_ATT = "full", "full, nothing recalled", "full, align-att"
TARGET_ONLY, ONE_PROCESS, PLAIN = "target-only", "one process", "transformers"
ARMS = (FULL, NO_RECALL, ALIGN_ATT, TARGET_ONLY, ONE_PROCESS, PLAIN)
MAX_SESSIONS = 16
SPACING_S = 3.1  # between the beginnings of sessions: nobody speaks in step with another


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers and workers of a run, already warm."""

    target: Server
    split: Server
    one_process: Server
    plain: Worker

    def hear(self, arm: str, take: Take, live: LiveOptions, num_sessions: int = 1) -> list[Heard]:
        """Speak a take to an arm, or several times at once, begun one after the other."""
        process = {ONE_PROCESS: self.one_process, PLAIN: self.plain}.get(arm, self.target).process
        before_s = cpu_s(process)
        if arm == PLAIN:
            all_heard: list[Heard] = [self.plain.call("listen", take, live)]
        else:
            all_heard = asyncio.run(self._listen(arm, take, live, num_sessions))
        for heard in all_heard:
            heard.target_cpu_s = (cpu_s(process) - before_s) / num_sessions
        return all_heard

    async def _listen(self, arm: str, take: Take, live: LiveOptions, num_sessions: int) -> list[Heard]:
        server = (self.one_process if arm == ONE_PROCESS else self.split).address
        mode = Mode.TARGET_ONLY if arm == TARGET_ONLY else Mode.FULL
        if arm == NO_RECALL:
            live = replace(live, reuses_candidates=False)
        if arm == ALIGN_ATT:
            live = replace(live, policy=StabilityPolicy.ALIGN_ATT)
        delays_s = (number * SPACING_S for number in range(num_sessions))
        return await asyncio.gather(
            *(listen(server, take, live, mode, delay_s=delay_s) for delay_s in delays_s)
        )


@contextmanager
def stage(target: str, draft: str, dtype: str = "float32") -> Iterator[Stage]:
    """Start everything: the target on one core, the draft and this program on the other."""
    first, second = first_two_cores()
    sessions = ("--max-sessions", str(MAX_SESSIONS))
    with ExitStack() as stack:
        plain = Worker(partial(PlainTransformers, target), cores=[first])
        stack.callback(plain.stop)
        server = stack.enter_context(
            running_process(
                "specwhisper_target_server", "--model", target, "--dtype", dtype, *sessions, cores=[first]
            )
        )
        draft_model, of_target = ("--draft-model", draft), ("--target", server.address)
        split = stack.enter_context(
            running_process("specwhisper_draft_server", *of_target, *draft_model, *sessions, cores=[second])
        )
        both = sorted({first, second})
        one_process = stack.enter_context(
            running_process("specwhisper_draft_server", "--target-model", target, *draft_model, cores=both)
        )
        stack.enter_context(on_cores([second]))
        yield Stage(server, split, one_process, plain)
