"""The model that hears speech is there before anybody speaks; where it is not installed, that is said."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

from draft_server import voice
from specwhisper.errors import UnsupportedOption
from specwhisper.wire.streams import with_true_status
from tests.rpc.services import all_free, audio_requests, error_of, is_one_sentence
from tests.rpc.speaking import Ear, config, final_results, listen, speaking_pair, talk


@pytest.fixture
def not_loaded():
    voice._model.cache_clear()
    yield
    voice._model.cache_clear()


async def test_it_is_loaded_as_the_server_starts(not_loaded):
    num_threads = torch.get_num_threads()
    async with speaking_pair() as (target, draft):
        assert voice._model.cache_info().misses == 1
        assert torch.get_num_threads() == num_threads
        await listen(draft, talk())
        assert voice._model.cache_info().misses == 1
        await all_free(target, draft)


async def test_it_is_loaded_beside_the_event_loop(monkeypatch):
    threads = []

    def load() -> Ear:
        threads.append(threading.current_thread())
        return Ear()

    monkeypatch.setattr(voice, "_model", load)
    async with speaking_pair():
        assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("package", ["silero_vad", "onnxruntime"])
async def test_without_it_only_who_asks_for_it_is_refused(not_loaded, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    async with speaking_pair() as (target, draft):
        requests = [config(), *audio_requests(talk())]
        error = await error_of(with_true_status(draft.stub.StreamingRecognize(iter(requests))))
        assert type(error) is UnsupportedOption and is_one_sentence(error)
        assert f"Live audio needs {package} on the draft server" in str(error)
        assert final_results(await listen(draft, talk(), disabled=True))
        await all_free(target, draft)
