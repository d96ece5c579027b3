"""A process that ends while an engine runs has status 0 and leaves no thread."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import mostly_nightly

ROOT = Path(__file__).parents[3]

BEGIN = """
import atexit, sys, threading
def check():
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print("left:", *left)
atexit.register(check)  # registered first, so it runs last
from experiments.common.models.scripted import ScriptedModel, recording
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode
from specwhisper.engine.shared_pair import Prepared, SharedPair
ALONE = DraftLength(Mode.TARGET_ONLY)
def transcribe(pair, *lengths_s, **how):
    english = DecodingOptions.greedy(language="en")
    prepared = [Prepared(recording(length_s), english) for length_s in lengths_s]
    return pair.transcribe(prepared, ALONE, max_sessions=8, **how)
pair = SharedPair(ScriptedModel(8))
"""
ENDS = {
    "an iterator that is alive": "results = transcribe(pair, 1.0, *[300.0] * 7); next(results)",
    "a pair that is gone": "for _ in transcribe(pair, 1.0, *[300.0] * 7): break\ndel pair",
    "in the middle of a call": "next(transcribe(pair, *[300.0] * 8, watch=lambda *_: sys.exit()))",
    "a thread that waits for its call": (
        "wait = lambda: dict(transcribe(pair, *[300.0] * 8, watch=lambda *_: begun.set()))\n"
        "begun = threading.Event()\n"
        "threading.Thread(target=wait, daemon=True, name='waits').start()\n"
        "begun.wait()"
    ),
}


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("name", mostly_nightly(["in the middle of a call", *ENDS]))
def test_no_thread_outlives_the_interpreter(name):
    ended = run(ENDS[name])
    left = "left: waits" if "waits" in ENDS[name] else "left:"
    assert (ended.returncode, ended.stderr, ended.stdout.strip()) == (0, "", left)


@pytest.mark.nightly
def test_a_program_that_ends_while_torch_computes():
    script = (
        "from transformers.utils import logging\n"
        "logging.disable_progress_bar()\n"
        "from experiments.common.audio.samples import load_samples\n"
        "from specwhisper import SpeculativeWhisper\n"
        "whisper = SpeculativeWhisper('demo-draft-tiny', 'demo-target', device='cpu', batch_size=4)\n"
        "pcm = load_samples(None)[0].pcm\n"
        "pieces = [np.frombuffer(pcm, '<i2')[: 16_000 * length_s] for length_s in (1, 9, 9, 9, 9, 9)]\n"
        "for _ in whisper.transcribe_iter(pieces, language='en', progress=False): break"
    )
    ended = run("import numpy as np\n" + script)
    assert (ended.returncode, ended.stderr, ended.stdout.strip()) == (0, "", "left:")


@pytest.mark.nightly
def test_threads_that_outlive_the_main_thread_still_transcribe():
    ended = run(
        "dict(transcribe(pair, 1.0))\n"
        "def last():\n"
        "    threading.main_thread().join()\n"
        "    print([type(result).__name__ for _, result in transcribe(pair, 1.0, 70.0)])\n"
        "threading.Thread(target=last).start()"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == "['Transcription', 'Transcription']"


@pytest.mark.nightly
def test_an_engine_that_was_not_stopped_ends_with_the_process():
    ended = run(
        "import asyncio\n"
        "from specwhisper.engine.engine_thread import EngineThread\n"
        "class Endless:\n"
        "    has_work, wake_after_s = True, 0.0\n"
        "    def step(self): return []\n"
        "async def serve(): EngineThread('server').start(Endless())\n"
        "asyncio.run(serve())"
    )
    assert (ended.returncode, ended.stderr, ended.stdout.strip()) == (0, "", "left:")
