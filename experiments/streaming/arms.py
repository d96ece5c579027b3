"""What is compared: this project's modes on real servers, and other programs on the same core."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.common.servers.processes import Server, Worker, running_pair
from experiments.common.servers.usage import cpu_s
from experiments.streaming.measures import Shown
from experiments.streaming.peers import FasterWhisperLoop, WhisperLiveKit
from experiments.streaming.session import PIECE_BYTES, run_session
from experiments.streaming.takes import Take
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.names import resolve
from specwhisper.types import Mode

CONFIRM_EVERY_S = 2.0
FULL, TARGET_ONLY, CONFIRM_EVERY = "full", "target-only", f"full, --confirm-every {CONFIRM_EVERY_S:g}"
PEERS: dict[str, tuple[str, Any]] = {  # module that they need, and class
    "faster-whisper": ("faster_whisper", FasterWhisperLoop),
    "WhisperLiveKit": ("whisperlivekit", WhisperLiveKit),
}
ARMS = (FULL, TARGET_ONLY, CONFIRM_EVERY, *PEERS)
SPACING_S = 1.7  # between starts of sessions, so that they do not pause at the same moments


@dataclass(frozen=True, slots=True)
class Measured:
    """The texts of a session, and its share of the CPU time of the processes that hold the models.

    It was one of ``num_sessions`` at once, at ``speed`` times real time.
    """

    arm: str
    take: Take
    num_sessions: int
    speed: float
    shown: Sequence[Shown]
    target_cpu_s: float = 0.0
    draft_cpu_s: float = 0.0

    @property
    def text(self) -> str:
        return "".join(each.final for each in self.shown).strip()

    @property
    def is_reference(self) -> bool:
        return self.num_sessions == 1 and self.speed == 1.0

    @property
    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"take": self.take.condition}


class Arms:
    """Runs arms: target server and other programs on the first core, the draft server on the second."""

    def __init__(self, target: str, draft: str, cores: tuple[int, int], stack: ExitStack) -> None:
        self._target, self._draft, self._stack = target, draft, stack
        folder = Path(resolve(target))
        self._peer_folder = folder if (folder / "model.bin").is_file() else None  # a CTranslate2 folder
        self._cores = cores
        self._servers: tuple[Server, Server] | None = None
        self._peers: dict[str, Worker] = {}

    def missing(self, arm: str) -> str | None:
        if arm in PEERS and find_spec(PEERS[arm][0]) is None:
            return f"not installed: {PEERS[arm][0]}"
        if arm in PEERS and self._peer_folder is None:
            return "the target is not a CTranslate2 folder"
        return None

    def warm_up(self, arm: str, take: Take) -> None:
        """Start what the arm needs, and transcribe three seconds of a take."""
        self.run(arm, replace(take, pcm=take.pcm[: 30 * PIECE_BYTES]), speed=10.0)

    def run(self, arm: str, take: Take, num_sessions: int = 1, speed: float = 1.0) -> list[Measured]:
        """Run a take in concurrent sessions that start one after the other; peers only one, in real time."""
        processes = [self._peer(arm).process] if arm in PEERS else [one.process for one in self._served()]
        before_s = [cpu_s(process) for process in processes]
        if arm in PEERS:
            all_shown: list[list[Shown]] = [self._peer(arm).call("run", take.pcm)]
        else:
            all_shown = asyncio.run(self._run_sessions(arm, take, num_sessions, speed))
        used_s = [(cpu_s(one) - s) / num_sessions for one, s in zip(processes, before_s, strict=True)]
        return [Measured(arm, take, num_sessions, speed, shown, *used_s) for shown in all_shown]

    async def _run_sessions(self, arm: str, take: Take, num_sessions: int, speed: float) -> list[list[Shown]]:
        every: dict[str, Any] = (
            {"confirm_every_ms": round(1000 * CONFIRM_EVERY_S)} if arm == CONFIRM_EVERY else {}
        )
        mode = Mode.TARGET_ONLY if arm == TARGET_ONLY else Mode.FULL
        _, draft = self._served()
        run = partial(
            run_session, draft.address, take.pcm, mode, replace(LiveOptions(), **every), speed=speed
        )
        delays_s = (number * SPACING_S / speed for number in range(num_sessions))
        return await asyncio.gather(*(run(delay_s=delay_s) for delay_s in delays_s))

    def _peer(self, arm: str) -> Worker:
        if arm not in self._peers:
            build = partial(PEERS[arm][1], self._peer_folder)
            self._peers[arm] = self._stack.enter_context(Worker(build, cores=self._cores[:1]))
        return self._peers[arm]

    def _served(self) -> tuple[Server, Server]:
        if self._servers is None:
            options = "--dtype", "int8", "--cut-windows"
            pair = running_pair(self._target, self._draft, *options, cores=self._cores, sessions=8)
            self._servers = self._stack.enter_context(pair)
        return self._servers
