"""Settings for all tests: no network, and property tests that can be repeated."""

import os

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.nightly import NIGHTLY

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub: no test downloads a model
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # silences a warning about forks
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests share few cores: more threads only wait

# Test machines may be busy: no time limit for one example, only the timeout of the whole test.
settings.register_profile("specwhisper", deadline=None, print_blob=True)
settings.load_profile("specwhisper")


@pytest.fixture
def emptiest_first(monkeypatch) -> None:
    """Make draft servers open sessions at the target with the most free slots."""
    from experiments.common.servers.emptiest import choose_emptiest  # after the environment is set

    monkeypatch.setattr("specwhisper_draft_server.link.targets.choose", choose_emptiest)


class Scheduling(LoadFileScheduling):
    """Run each file on one worker, and all Ray clusters on one: they share ports."""

    def _split_scope(self, nodeid: str) -> str:
        return "cluster" if nodeid.startswith("tests/cluster/") else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    """Replace the scheduler of ``--dist loadfile``, which scripts/test sets."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip nightly tests unless SPECWHISPER_NIGHTLY is set."""
    if NIGHTLY:
        return
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="runs with SPECWHISPER_NIGHTLY=1"))
