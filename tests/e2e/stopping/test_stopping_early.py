"""SIGTERM and SIGINT end a server that is not yet ready, also as PID 1."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import START_S, Process
from tests.nightly import mostly_nightly

pytestmark = pytest.mark.timeout(300)

SERVERS = ("specwhisper_target_server", "specwhisper_draft_server", "specwhisper_gateway")
AS_INIT = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare() -> bool:
    try:
        return subprocess.run([*AS_INIT, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(params=mostly_nightly(["init", "plain"] if can_unshare() else ["plain"]))
def started(request) -> Iterator[Callable[..., Process]]:
    """Return a function that starts servers, as usual or as PID 1 of a namespace."""
    processes = []

    def start(*command: str) -> Process:
        processes.append(Process(*command, prefix=AS_INIT if request.param == "init" else ()))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


def server_pid(process: Process) -> int:
    """Return the PID of the server, which may be a child of the started process."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


def statuses(number: int) -> set[int]:
    """Return the exit status after a signal, as a shell and as subprocess report it."""
    return {128 + number, -number}


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT]))
@pytest.mark.parametrize("module", SERVERS)
async def test_a_signal_ends_a_server_that_reads_its_flags(module, number, started, tmp_path):
    """Its token file is a pipe; its other end opens when the server reads it."""
    tokens = tmp_path / "tokens"
    os.mkfifo(tokens)
    server = started(module, "--port", "0", "--tokens-file", str(tokens))
    with await asyncio.to_thread(open, tokens, "w"):
        os.kill(server_pid(server), number)
        status, out, _ = await asyncio.to_thread(server.wait)
    assert status in statuses(number)
    assert out == ""


@pytest.mark.parametrize(
    ("module", "flag"),
    mostly_nightly([("specwhisper_target_server", "--model"), ("specwhisper_draft_server", "--draft-model")]),
)
async def test_a_signal_ends_a_server_that_loads_its_model(module, flag, started, tmp_path, monkeypatch):
    """Its hub never answers; the server loads its model when the hub is called."""
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        hub.settimeout(START_S)
        server = started(module, "--port", "0", flag, "example/whisper")
        call, _ = await asyncio.to_thread(hub.accept)
        with call:
            os.kill(server_pid(server), signal.SIGTERM)
            status, _, _ = await asyncio.to_thread(server.wait)
    assert status in statuses(signal.SIGTERM)
