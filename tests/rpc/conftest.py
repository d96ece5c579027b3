"""Fixtures for tests of the services."""

from collections.abc import AsyncIterator
from functools import lru_cache

import pytest

from experiments.common.models.speech import EnergyVad
from specwhisper.audio import speech
from specwhisper.audio.speech import SpeechMap
from specwhisper.rpc import failover, serving
from specwhisper.selection import VadOptions
from tests.rpc.services import Draft, Target, all_free, draft_server, target_server

find_speech = speech.find_speech  # before it is replaced


@lru_cache(64)
def speech_of(pcm: bytes, options: VadOptions) -> SpeechMap:
    return find_speech([pcm], options)


@pytest.fixture(autouse=True)
def remembered_speech(monkeypatch) -> None:
    """Find the speech of each recording once in all tests: silero-vad takes long, and is deterministic."""
    monkeypatch.setattr(speech, "find_speech", lambda blocks, options: speech_of(b"".join(blocks), options))


@pytest.fixture
def choose_first(monkeypatch) -> None:
    """Make clients choose the first of equally good servers."""
    monkeypatch.setattr("specwhisper_client.servers.random", lambda: 0.0)


@pytest.fixture
def fast_health_checks(monkeypatch) -> None:
    """Make servers check their engines often, with a short time limit."""
    monkeypatch.setattr(serving, "CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(serving, "CHECK_WITHIN_S", 0.2)


@pytest.fixture
def energy_vad(monkeypatch) -> None:
    """Replace the VAD model by one that detects speech by its energy."""
    monkeypatch.setattr("specwhisper_draft_server.voice_activity._model", EnergyVad)


@pytest.fixture
def fast_retries(monkeypatch) -> None:
    """Make clients and draft servers retry lost connections at least every 20 ms."""
    monkeypatch.setattr(failover, "MAX_DELAY_S", 0.02)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """Run a scripted target; at the end no session is left on it."""
    async with target_server() as running:
        yield running
        await all_free(running)


@pytest.fixture
async def draft(target) -> AsyncIterator[Draft]:
    """Run a draft server for the target; at the end no session is left on it."""
    async with draft_server(target.address) as running:
        yield running
        await all_free(target, running)
