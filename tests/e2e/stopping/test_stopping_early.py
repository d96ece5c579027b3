"""SIGTERM and SIGINT end a server that is not yet ready."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.processes import START_S, Process
from tests.nightly import mostly_nightly

pytestmark = pytest.mark.timeout(300)

SERVERS = ("specwhisper_target_server", "specwhisper_draft_server", "specwhisper_gateway")


@pytest.fixture
def started() -> Iterator[Callable[..., Process]]:
    """Return a function that starts processes, which end with the test."""
    processes = []

    def start(*command: str) -> Process:
        processes.append(Process(*command))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT]))
@pytest.mark.parametrize("module", SERVERS)
async def test_a_signal_ends_a_server_that_reads_its_flags(module, number, started, tmp_path):
    """Its token file is a pipe; its other end opens when the server reads it."""
    tokens = tmp_path / "tokens"
    os.mkfifo(tokens)
    server = started(module, "--port", "0", "--tokens-file", str(tokens))
    with await asyncio.to_thread(open, tokens, "w"):
        os.kill(server.pid, number)
        status, out, _ = await asyncio.to_thread(server.wait)
    assert status == -number
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
            os.kill(server.pid, signal.SIGTERM)
            status, _, _ = await asyncio.to_thread(server.wait)
    assert status == -signal.SIGTERM
