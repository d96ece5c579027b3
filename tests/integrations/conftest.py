"""The bundled pair with a draft server and a gateway, and recordings."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.e2e.processes import Server

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"
SILENCE_S = 12.0  # after the speech: time for the last text on a busy machine


@dataclass(frozen=True)
class Addresses:
    draft: str
    gateway: str


@pytest.fixture(scope="session")
def servers() -> Iterator[Addresses]:
    with ExitStack() as stack:

        def start(module: str, *options: str) -> str:
            server = stack.enter_context(closing(_Closing(module, "--port", "0", *options)))
            return server.address

        target = start("specwhisper_target_server", "--threads", "1")
        draft = start("specwhisper_draft_server", "--target", target, "--threads", "1")
        yield Addresses(draft, start("specwhisper_gateway", "--server", draft))


class _Closing(Server):
    def close(self) -> None:
        self.end()


@pytest.fixture(scope="session")
def recording(tmp_path_factory) -> Path:
    """Return a phone call as WAV, followed by silence."""
    samples, rate = soundfile.read(SAMPLE, dtype="int16")
    path = tmp_path_factory.mktemp("recordings") / "phone_call.wav"
    silence = np.zeros(round(SILENCE_S * rate), np.int16)
    soundfile.write(path, np.concatenate([samples, silence]), rate, subtype="PCM_16")
    return path
