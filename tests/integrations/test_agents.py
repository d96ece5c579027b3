"""Pipecat and LiveKit transcribe with their defaults, but for the address."""

from __future__ import annotations

import pytest

from experiments.agents.clients import MODULES, PYTHON, interpreter_with, transcribe
from tests.e2e.test_gateway import SPOKEN_TEXT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.parametrize("service", ["nvidia", "openai", "openai-realtime"])
@pytest.mark.parametrize("framework", sorted(MODULES))
def test_an_unmodified_service_transcribes(framework, service, servers, recording):
    if interpreter_with(MODULES[framework]) is None:
        pytest.skip(f"{MODULES[framework]} is not installed; scripts/nightly integrations sets {PYTHON}")
    address = servers.draft if service == "nvidia" else servers.gateway
    texts = transcribe(framework, service, address, recording)
    assert not [text for text in texts if text.kind == "error"]
    final = " ".join(text.text.strip() for text in texts if text.kind == "final")
    assert final == SPOKEN_TEXT
    if service == "nvidia":
        assert any(text.kind == "interim" for text in texts)
