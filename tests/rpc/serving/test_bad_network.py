"""A bad network between draft and target changes no text."""

from functools import partial

import pytest

from experiments.common.models.scripted import VOCABULARY
from specwhisper.engine import verifier
from tests.interference import KINDS, LOSSY, Interference
from tests.nightly import mostly_nightly
from tests.rpc.network import bad_network
from tests.rpc.services import MODES, all_free, check_text, draft_server, target_server


@pytest.mark.parametrize("kind", mostly_nightly(sorted(KINDS, reverse=True), by_day=3))
async def test_every_mode_writes_the_same_text_under_interference(kind):
    async with (
        target_server() as target,
        bad_network(
            target.address, partial(Interference, kind, 7, vocabulary_size=len(VOCABULARY))
        ) as network,
        draft_server(network.address) as draft,
    ):
        for mode, gamma in zip(MODES, (1, 3, 5, 16), strict=True):
            await check_text(draft, 33.0, mode=mode, gamma=gamma, interim=True)
        await all_free(target, draft)


async def test_lost_blocks_cost_time_but_no_text(monkeypatch):
    """A target waits for lost candidates for seconds, here for less."""
    monkeypatch.setattr(verifier, "CANDIDATES_TIMEOUT_NS", 200_000_000)
    loses = partial(Interference, LOSSY, 7, vocabulary_size=len(VOCABULARY))
    async with (
        target_server() as target,
        bad_network(target.address, loses) as network,
        draft_server(network.address) as draft,
    ):
        for mode in MODES:
            responses = await check_text(draft, 1.0, mode=mode, gamma=3)
            if mode in ("MODE_SYNC", "MODE_PIPELINED"):
                assert responses[-1].statistics.num_accepted > 0
            if mode == "MODE_SYNC":
                assert responses[-1].statistics.num_self_decoded > 0  # after the wait for candidates
        await all_free(target, draft)
