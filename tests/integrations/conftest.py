"""A phone call, and the servers of the end-to-end tests: the bundled pair and a gateway."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.conftest import demo_gateway, demo_server, demo_servers, start_server_for_all

__all__ = ("demo_gateway", "demo_server", "demo_servers", "start_server_for_all")
SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"
SILENCE_S = 12.0  # after the speech: time for the last text on a busy machine


@pytest.fixture(scope="session")
def recording(tmp_path_factory) -> Path:
    """Return a phone call as WAV, followed by silence."""
    samples, rate = soundfile.read(SAMPLE, dtype="int16")
    path = tmp_path_factory.mktemp("recordings") / "phone_call.wav"
    silence = np.zeros(round(SILENCE_S * rate), np.int16)
    soundfile.write(path, np.concatenate([samples, silence]), rate, subtype="PCM_16")
    return path
