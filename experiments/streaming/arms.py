"""Arms: our modes on real servers, and plain transformers with the same policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from experiments.common.servers.processes import Server, Worker, first_two_cores, on_cores, running_process
from experiments.common.servers.usage import cpu_s
from experiments.streaming.live_client import LiveResult, run_live_session
from experiments.streaming.plain import PlainTransformers
from experiments.streaming.takes import Take
from specwhisper.live import LiveOptions
from specwhisper.types import Mode

FULL, NO_REUSE = "full", "full, hypothesis not reused"
TARGET_ONLY, ONE_PROCESS, PLAIN = "target-only", "one process", "transformers"
ARMS = (FULL, NO_REUSE, TARGET_ONLY, ONE_PROCESS, PLAIN)
MAX_SESSIONS = 16
SPACING_S = 3.1  # between starts of sessions, so that their steps do not coincide


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers and workers of a run, already warm."""

    target: Server
    split: Server
    one_process: Server
    plain: Worker

    def run_sessions(
        self, arm: str, take: Take, live: LiveOptions, num_sessions: int = 1
    ) -> list[LiveResult]:
        """Run a take on an arm, in concurrent sessions that start one after the other."""
        process = {ONE_PROCESS: self.one_process, PLAIN: self.plain}.get(arm, self.target).process
        before_s = cpu_s(process)
        if arm == PLAIN:
            results: list[LiveResult] = [self.plain.call("run_live_session", take, live)]
        else:
            results = asyncio.run(self._run_sessions(arm, take, live, num_sessions))
        for result in results:
            result.target_cpu_s = (cpu_s(process) - before_s) / num_sessions
        return results

    async def _run_sessions(
        self, arm: str, take: Take, live: LiveOptions, num_sessions: int
    ) -> list[LiveResult]:
        server = (self.one_process if arm == ONE_PROCESS else self.split).address
        mode = Mode.TARGET_ONLY if arm == TARGET_ONLY else Mode.FULL
        if arm == NO_REUSE:
            live = replace(live, reuses_candidates=False)
        delays_s = (number * SPACING_S for number in range(num_sessions))
        return await asyncio.gather(
            *(run_live_session(server, take, live, mode, delay_s=delay_s) for delay_s in delays_s)
        )


@contextmanager
def running_servers(
    target: str, draft: str, dtype: str = "float32", *, cut_windows: bool = False
) -> Iterator[Servers]:
    """Start all servers: the target on one core, draft server and this program on the other.

    Parameters
    ----------
    cut_windows : whether target and draft of the split arms encode only the audio that there is.
    """
    first, second = first_two_cores()
    sessions = ("--max-sessions", str(MAX_SESSIONS))
    with ExitStack() as stack:
        plain = Worker(partial(PlainTransformers, target), cores=[first])
        stack.callback(plain.stop)
        server = stack.enter_context(
            running_process(
                "specwhisper_target_server",
                *("--model", target, "--dtype", dtype, *sessions),
                *(["--cut-live-windows"] if cut_windows else []),
                cores=[first],
            )
        )
        draft_model, of_target = ("--draft-model", draft), ("--target", server.address)
        split = stack.enter_context(
            running_process(
                "specwhisper_draft_server",
                *(*of_target, *draft_model, *sessions),
                *(["--cut-windows"] if cut_windows else []),
                cores=[second],
            )
        )
        both = sorted({first, second})
        one_process = stack.enter_context(
            running_process("specwhisper_draft_server", "--target-model", target, *draft_model, cores=both)
        )
        stack.enter_context(on_cores([second]))
        yield Servers(server, split, one_process, plain)
