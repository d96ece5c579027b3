"""Settings for all tests: no network, and property tests that can be repeated."""

import gc
import os
import signal
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.nightly import NIGHTLY, examples

gc.disable()  # until all tests are collected: their imports leave no garbage that is worth a collection

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub: no test downloads a model
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # silences a warning about forks
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests share few cores: more threads only wait

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as scripts start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of tests are interrupted

FIRST_PORT = 20_000  # for tests
LOWEST_OF_THE_SYSTEM = 32_768  # on Linux, see ip_local_port_range

# Test machines may be busy: no time limit for one example, only the timeout of the whole test.
settings.register_profile(
    "specwhisper", deadline=None, print_blob=True, max_examples=examples(by_day=15, at_night=200)
)
settings.load_profile("specwhisper")


@pytest.fixture
def emptiest_first(monkeypatch) -> None:
    """Make draft servers open sessions at the target with the most free slots."""
    from experiments.common.servers.emptiest import choose_emptiest  # after the environment is set

    monkeypatch.setattr("specwhisper_draft_server.link.targets.choose", choose_emptiest)


@pytest.fixture(scope="session")
def speaker_models(tmp_path_factory) -> Path:
    """Return a folder of tiny models that find speakers."""
    from tests.speaker_models import save_models  # few tests need what it imports

    return save_models(tmp_path_factory.mktemp("models") / "speakers")


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Callable[[], int]:
    """Return free ports that no connection is given, so that they are free later too.

    It takes ports of connections, and of servers on port 0, from a range above ``LOWEST_OF_THE_SYSTEM``;
    Ray takes those below ``FIRST_PORT``. Each worker has a part of the ports between.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    num_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = iter(range(FIRST_PORT + worker, LOWEST_OF_THE_SYSTEM, num_workers))

    def unused_port() -> int:
        for port in ports:
            with closing(socket.socket()) as tried, suppress(OSError):
                tried.bind(("127.0.0.1", port))
                return port
        raise RuntimeError("Every port for tests was given out.")

    return unused_port


@pytest.fixture
def unused_tcp_port(unused_tcp_port_factory) -> int:
    """Return a port that stays free for this test."""
    return unused_tcp_port_factory()


# Ray clusters share ports. Tests of processes share servers and wait most of the time: one worker has all of
# them, beside others that compute.
TOGETHER = {"tests/cluster/": "cluster", "tests/e2e/": "e2e"}


class Scheduling(LoadFileScheduling):
    """Run each file on one worker, and some files on the same one."""

    def _split_scope(self, nodeid: str) -> str:
        scopes = (scope for start, scope in TOGETHER.items() if nodeid.startswith(start))
        return next(scopes, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    """Replace the scheduler of ``--dist loadfile``, which scripts/test sets."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave the objects of all imports and tests out of garbage collections, which take long."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and skip nightly tests unless SPECWHISPER_NIGHTLY is set."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/e2e/"))
    if NIGHTLY:
        return
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="runs with SPECWHISPER_NIGHTLY=1"))
