"""A stop signal reaches a server, and later ones are ignored."""

import asyncio
import signal

import pytest

from specwhisper.rpc.process import STOP_SIGNALS, stop_signals


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_a_signal_stops(number):
    stopped = asyncio.Event()
    with stop_signals(stopped.set):
        signal.raise_signal(number)
        await asyncio.wait_for(stopped.wait(), 10)
    assert all(signal.getsignal(each) is signal.SIG_IGN for each in STOP_SIGNALS), "a late one is ignored"


async def test_without_a_signal_handlers_are_removed():
    with stop_signals(lambda: None):
        pass
    assert signal.SIG_IGN not in map(signal.getsignal, STOP_SIGNALS)
