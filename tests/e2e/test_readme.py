"""Python programs of the README and of the pages on using it run when pasted."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import soxr

from tests.speaker_models import save_models

ROOT = Path(__file__).parents[2]
PAGES_AT_NIGHT = ("docs/transcribing.md", "docs/streaming.md", "docs/gateway.md", "docs/integrations.md")
SAMPLE = ROOT / "specwhisper" / "demo" / "samples" / "01_phone_call.flac"
MICROPHONE = """
import soundfile

PortAudioError = OSError


class RawInputStream:
    def __init__(self, *, blocksize, callback, finished_callback, **_):
        self._blocksize, self._callback, self._finish = blocksize, callback, finished_callback

    def __enter__(self):
        samples, _ = soundfile.read({sample!r}, dtype="int16")
        for start in range(0, len(samples), self._blocksize):
            self._callback(samples[start : start + self._blocksize].tobytes(), None, None, None)
        self._finish()

    def __exit__(self, *_):
        pass
"""

pytestmark = pytest.mark.timeout(300)


def programs() -> Iterator[object]:
    """Return each Python block of the pages, named by its page and its line."""
    for page in ("README.md", *PAGES_AT_NIGHT):
        text = (ROOT / page).read_text(encoding="utf-8")
        marks = [pytest.mark.nightly] if page in PAGES_AT_NIGHT else []
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 2
            yield pytest.param(block[1], id=f"{page}:{line}", marks=marks)


@pytest.fixture(scope="module")
def addresses(demo_server, demo_gateway) -> dict[str, str]:
    """Return addresses of a draft server and a gateway by those of the pages."""
    return {"127.0.0.1:50051": demo_server, "127.0.0.1:8000": demo_gateway.address}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with the recordings that pages name, and a module in the place of a microphone."""
    folder = tmp_path_factory.mktemp("recordings")
    samples, rate = soundfile.read(SAMPLE, dtype="int16")
    soundfile.write(folder / "meeting.wav", samples, rate)
    soundfile.write(folder / "speech.wav", soxr.resample(samples, rate, 24_000), 24_000)
    (folder / "sounddevice.py").write_text(MICROPHONE.format(sample=str(SAMPLE)))
    shutil.copy(SAMPLE, folder / "meeting.mp3")  # decoders look at the content
    save_models(folder / "speaker-models")
    return folder


@pytest.mark.parametrize("program", list(programs()))
def test_a_program_runs_when_pasted(program, addresses, folder):
    recordings = {f'"{file.name}"': f'"{file}"' for file in folder.glob("*.[mw]*")}
    models = {'"speaker-models"': f'"{folder / "speaker-models"}"'}
    for stated, actual in {**addresses, **recordings, **models}.items():
        program = program.replace(stated, actual)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"[a-z]{3}.*\.", done.stdout), "no sentence was printed"
