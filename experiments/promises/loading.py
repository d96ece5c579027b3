"""Servers stopped while they load a model: they end at once, also as a container's first process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from experiments.common.bench.report import Bar

MAX_END_S = 1.0
START_TIMEOUT_S = 120.0
SERVERS = {"specwhisper_target_server": "--model", "specwhisper_draft_server": "--draft-model"}
AS_INIT = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
STATUSES = (-signal.SIGTERM, 128 + signal.SIGTERM)  # of a process, and as a parent passes it on


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a server that was stopped while it loaded a model.

    Attributes
    ----------
    is_init : whether it was the first process of a namespace.
    """

    server: str
    is_init: bool
    end_s: float
    exit_status: int


async def measure_loading(rounds: int, folder: Path) -> list[Ended]:
    """Stop each server once it has asked a hub, which never answers, for its model."""
    kinds = [False, *([True] if _can_unshare() else [])]
    return [
        await _stop(server, folder, is_init=is_init)
        for _ in range(rounds)
        for server in SERVERS
        for is_init in kinds
    ]


def bars(ended: list[Ended]) -> list[Bar]:
    """Return the bars."""
    end_s = max(one.end_s for one in ended)
    num_bad = sum(one.exit_status not in STATUSES for one in ended)
    num_init = sum(one.is_init for one in ended)
    of_all = f"of {len(ended)}, {num_init} of them as a first process"
    return [
        Bar(
            "SIGTERM to the end of a server that loads its model, s",
            end_s,
            MAX_END_S,
            f"{end_s:.2f} at most {of_all}",
        ),
        Bar("servers that loaded and ended by something else", num_bad, 1, f"{num_bad} {of_all}"),
    ]


def _can_unshare() -> bool:
    try:
        return subprocess.run([*AS_INIT, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


async def _stop(server: str, folder: Path, *, is_init: bool) -> Ended:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(START_TIMEOUT_S)
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}",
            "HF_HOME": str(folder),
            "HF_HUB_OFFLINE": "0",
        }
        process = await asyncio.create_subprocess_exec(
            *(AS_INIT if is_init else ()),
            *(sys.executable, "-m", server, "--port", "0", SERVERS[server], "example/whisper"),
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            call, _ = await asyncio.to_thread(hub.accept)
            with call:
                signalled_s = monotonic()
                os.kill(_server_pid(process.pid), signal.SIGTERM)
                async with asyncio.timeout(START_TIMEOUT_S):
                    status = await process.wait()
                return Ended(server, is_init, monotonic() - signalled_s, status)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _server_pid(pid: int) -> int:
    """Return the server's own process, which is a child where something else has started it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid
