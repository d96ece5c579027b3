"""Parts of two releases write the same text in every mixture.

Every push tests a draft server of the previous release with all else of this one; the nightly run tests all.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import openai
import pytest

from experiments.common.models.speech import SPOKEN, spoken_utterances, talk
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.types import SAMPLE_RATE
from tests.compat.conftest import Run, Start, Trees
from tests.compat.release import MODULES, ROOT, Version
from tests.e2e.processes import START_S, python_path

pytestmark = pytest.mark.timeout(900)

SAMPLES = DEMO_FOLDER / "samples"
SAMPLE = json.loads((SAMPLES / "metadata.jsonl").read_text().splitlines()[0])
RECORDING = SAMPLES / SAMPLE["file_name"]
OLD, NEW = Version.OLD, Version.NEW
LISTEN = Path(__file__).with_name("listen.py")
SCRIPTED = "experiments.common.serve_scripted"


def mixtures(roles: int, *for_every_push: tuple[Version, ...]) -> list:
    """Return the mixtures of versions; all but ``for_every_push`` run nightly."""
    return [
        pytest.param(*mixture, marks=() if mixture in for_every_push else pytest.mark.nightly)
        for mixture in product(Version, repeat=roles)
        if OLD in mixture
    ]


NEW_SERVERS = pytest.param(NEW, NEW, marks=pytest.mark.nightly)  # for clients of the previous release


class Speaker:
    """A live client of a version, which pauses after half of its audio."""

    def __init__(self, tree: Path, server: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, LISTEN, server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": python_path(tree), "OMP_NUM_THREADS": "1"},
            cwd=tree,
            text=True,
        )

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_half(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "half\n"

    def rest(self) -> dict[int, list[int]]:
        """Send the rest, and return the words of each utterance."""
        out, _ = self._process.communicate("\n", START_S)
        assert self._process.returncode == 0
        return {int(utterance): words for utterance, words in json.loads(out).items()}


def realtime_texts(gateway: str, count: int) -> list[str]:
    """Return the texts of utterances from a gateway's realtime API."""
    audio = {"input": {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}}}
    texts: list[str] = []
    with (
        openai.OpenAI(base_url=f"http://{gateway}/v1", api_key="none") as api,
        api.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        connection.session.update(session={"type": "transcription", "audio": audio})
        connection.input_audio_buffer.append(audio=base64.b64encode(talk()).decode())
        for event in connection:
            assert event.type != "error", event
            if event.type == "conversation.item.input_audio_transcription.completed":
                texts.append(event.transcript)
                if len(texts) == count:
                    break
    return texts


def text_of(tokens: list[int]) -> str:
    """Return the text of words."""
    return "".join(SPOKEN.tokens[token] for token in tokens).replace("Ġ", " ").strip()


@pytest.mark.parametrize("version", Version)
def test_each_version_runs_its_own_code(version, trees):
    modules = ", ".join(MODULES[version].values())
    script = f"import specwhisper, {modules}; print(specwhisper.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": python_path(trees[version])},
        cwd=trees[version],
        capture_output=True,
        text=True,
    )
    assert Path(ran.stdout.strip()).parents[1] == trees[version]
    assert trees[OLD] != ROOT


@pytest.mark.parametrize(
    ("draft", "target"), [*mixtures(2), pytest.param(NEW, NEW, marks=pytest.mark.nightly)]
)
def test_recordings_are_transcribed(draft: Version, target: Version, start: Start, run: Run):
    """Use command line and OpenAI's API, of both versions unless servers are new."""
    to_target = start(target, MODULES[target]["target server"], "--port", "0", "--threads", "1")
    to_draft = start(
        draft, MODULES[draft]["draft server"], "--port", "0", "--threads", "1", "--target", to_target.address
    )
    gateways = [
        start(gateway, MODULES[gateway]["gateway"], "--port", "0", "--server", to_draft.address)
        for gateway in Version
    ]
    asked = ("transcribe", str(RECORDING), "--server", to_draft.address, "--language", "en", "--quiet")
    for client in Version:
        status, out, err = run(client, MODULES[client]["client"], *asked).wait(START_S)
        assert (status, err) == (0, ""), client
        assert out.split() == SAMPLE["text"].split(), client
    for gateway in gateways:
        with openai.OpenAI(base_url=f"http://{gateway.address}/v1", api_key="none", max_retries=0) as api:
            transcription = api.audio.transcriptions.create(file=RECORDING, model="whisper-1", language="en")
        assert transcription.text.split() == SAMPLE["text"].split()
    for server in (to_draft, to_target):
        assert len(server.session_ids()) == len(Version) + len(gateways), "one session each on both servers"


@pytest.mark.parametrize(("client", "draft", "target"), mixtures(3, (NEW, OLD, NEW)))
def test_live_audio_is_transcribed(
    client: Version, draft: Version, target: Version, start: Start, trees: Trees
):
    to_target = start(target, SCRIPTED, "target")
    to_draft = start(draft, SCRIPTED, "draft", "--target", to_target.address)
    with Speaker(trees[client], to_draft.address) as speaker:
        speaker.wait_half()
        assert speaker.rest() == spoken_utterances(talk())


@pytest.mark.parametrize(("gateway", "draft", "target"), mixtures(3))
def test_live_audio_through_a_gateway_is_transcribed(
    gateway: Version, draft: Version, target: Version, start: Start
):
    """Use OpenAI's realtime API."""
    to_target = start(target, SCRIPTED, "target")
    to_draft = start(draft, SCRIPTED, "draft", "--target", to_target.address)
    to_gateway = start(gateway, MODULES[gateway]["gateway"], "--port", "0", "--server", to_draft.address)
    said = [text_of(tokens) for tokens in spoken_utterances(talk()).values()]
    assert realtime_texts(to_gateway.address, len(said)) == said
    for server in (to_draft, to_target):
        assert len(server.session_ids()) == 1, "one session on both servers"


@pytest.mark.nightly
@pytest.mark.parametrize("draft", Version)
@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
def test_a_session_migrates_between_targets_of_the_two_versions(
    draft: Version, first: Version, second: Version, start: Start, trees: Trees, unused_tcp_port_factory
):
    """This happens in an update and in a rollback of one."""
    ports = [str(unused_tcp_port_factory()) for _ in range(2)]
    leaves = start(first, SCRIPTED, "target", "--port", ports[0])
    targets = ",".join(f"127.0.0.1:{port}" for port in ports)
    to_draft = start(draft, SCRIPTED, "draft", "--target", targets)
    assert leaves.address
    with Speaker(trees[NEW], to_draft.address) as speaker:
        speaker.wait_half()
        leaves.wait_event("session opened")
        takes = start(second, SCRIPTED, "target", "--port", ports[1])
        assert takes.address
        leaves.send_signal(signal.SIGTERM)
        takes.wait_event("session opened")
        assert speaker.rest() == spoken_utterances(talk())
    assert leaves.wait(START_S)[0] == 0
