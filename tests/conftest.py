"""What all tests share: no network, reproducible property tests."""

import os

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.nightly import NIGHTLY

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub: no test downloads a model
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # silences a warning about forks
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests share few cores: threads that wait for others only lose

# Machines of two cores that also do other things: an example may take its time, the whole test has a timeout.
settings.register_profile("specwhisper", deadline=None, print_blob=True)
settings.load_profile("specwhisper")


@pytest.fixture
def emptiest_first(monkeypatch) -> None:
    """Have draft servers open sessions at the target with the most room."""
    from experiments.common.servers.emptiest import choose_emptiest  # once the environment is set

    monkeypatch.setattr("specwhisper_draft_server.link.targets.choose", choose_emptiest)


class Scheduling(LoadFileScheduling):
    """Runs a file's tests on one core, and all Ray clusters on one: two at once take each other's ports."""

    def _split_scope(self, nodeid: str) -> str:
        return "cluster" if nodeid.startswith("tests/cluster/") else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    """Replace ``--dist loadfile``, which scripts/test asks for."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what takes long to the night."""
    if NIGHTLY:
        return
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="for SPECWHISPER_NIGHTLY=1"))
