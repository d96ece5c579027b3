"""Fixtures: recordings, and a shared pair of server processes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from experiments.common.models.checkpoints import Shape, save_checkpoint
from tests.e2e.processes import Server

RATE = 16_000


@dataclass(frozen=True)
class Checkpoints:
    target: Path
    draft: Path


@dataclass
class Pair:
    target: Server
    draft: Server


StartServer = Callable[..., Server]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> Checkpoints:
    folder = tmp_path_factory.mktemp("checkpoints")
    return Checkpoints(
        save_checkpoint(Shape(d_model=32, max_target_positions=100), folder / "target"),
        save_checkpoint(
            Shape(d_model=32, decoder_layers=1, max_target_positions=100, seed=1), folder / "draft"
        ),
    )


@pytest.fixture(scope="session")
def start_server_for_all() -> Iterator[StartServer]:
    yield from _starter()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    yield from _starter()


def _starter() -> Iterator[StartServer]:
    started: list[Server] = []

    def start(module: str, *arguments: object) -> Server:
        port = () if "--port" in arguments else ("--port", "0")
        started.append(Server(module, *port, "--threads", "1", *map(str, arguments)))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture(scope="session")
def demo_servers(start_server_for_all) -> Pair:
    """Start the bundled pair, each model in a server of its own."""
    target = start_server_for_all("specwhisper_target_server")
    draft = start_server_for_all(
        "specwhisper_draft_server", "--target", target.address, "--allow-latency-injection"
    )
    return Pair(target, draft)


@pytest.fixture(scope="session")
def demo_server(demo_servers) -> str:
    """Return the address of the bundled pair's draft server."""
    return demo_servers.draft.address


@pytest.fixture(scope="session")
def demo_gateway(demo_server) -> Iterator[Server]:
    """Start a gateway of the bundled pair."""
    server = Server("specwhisper_gateway", "--port", "0", "--server", demo_server)
    yield server
    server.end()


@pytest.fixture(scope="session")
def noise(tmp_path_factory) -> Callable[[float], Path]:
    """Return a function that writes a recording of a length in seconds."""
    folder = tmp_path_factory.mktemp("recordings")

    def record(length_s: float) -> Path:
        path = folder / f"{length_s:g}.wav"
        if not path.exists():
            samples = np.random.default_rng(0).integers(-3_000, 3_000, int(length_s * RATE))
            soundfile.write(path, samples.astype(np.int16), RATE)
        return path

    return record
