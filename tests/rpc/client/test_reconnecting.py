"""A live client reconnects after the server's retry time, not before."""

from itertools import pairwise
from time import monotonic

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.errors import ServerFull
from specwhisper.wire import status
from tests.rpc.network import CutClients, between
from tests.rpc.speaking import Listener, live_client, speaking_pair

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


class FullClients(CutClients):
    """Cuts a stream, and then refuses it as full.

    Parameters
    ----------
    num_full : how many of the next attempts are refused as full.
    """

    def __init__(self, draft, cuts, num_full: int) -> None:
        super().__init__(draft, cuts)
        self._num_full = num_full
        self.asked_s: list[float] = []

    async def StreamingRecognize(self, requests, context):
        self.asked_s.append(monotonic())
        if 1 < len(self.asked_s) <= 1 + self._num_full:
            raise ServerFull("No slot is free.")
        async for response in super().StreamingRecognize(requests, context):
            yield response


class Overfull(CutClients):
    """Ends an open stream as full."""

    async def StreamingRecognize(self, requests, context):
        async for response in super().StreamingRecognize(requests, context):
            yield response
            if response.results:
                raise ServerFull("No slot is free.")


async def check_talk(servers: str) -> int:
    """Send all of a talk; return the number of reconnects."""
    async with live_client(servers) as client:
        listener = Listener(client)
        await listener.end(talk())
    listener.check(spoken_utterances(talk()))
    return client.num_reconnects


async def test_a_full_server_is_asked_again_after_its_retry_time(monkeypatch):
    monkeypatch.setattr(status, "PUSHBACK_MS", 300)
    async with (
        speaking_pair() as (_, draft),
        between(draft.address, FullClients, [2], 3) as (proxy, network),
    ):
        assert await check_talk(proxy.address) == 1
        asked_s = network.asked_s
        assert len(asked_s) == 1 + 3 + 1
        waits_s = [after - before for before, after in pairwise(asked_s[1:])]
        assert all(wait_s >= 0.3 for wait_s in waits_s)


async def test_another_server_is_tried_at_once(monkeypatch, choose_first):
    """The retry time of the full server is longer than the test waits."""
    monkeypatch.setattr(status, "PUSHBACK_MS", 600_000)
    async with (
        speaking_pair() as (_, draft),
        between(draft.address, Overfull, []) as (proxy, _),
    ):
        assert await check_talk(f"{proxy.address},{draft.address}") == 1
