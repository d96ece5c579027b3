"""OpenAI's client for Node transcribes with its defaults, but for the address."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import soundfile
import soxr
import trustme

from tests.e2e.processes import Server
from tests.e2e.test_gateway import SPOKEN_TEXT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
NODE = Path(__file__).parent / "node"
OPENAI_RATE = 24_000


@pytest.fixture
def address(demo_server, tmp_path):
    """Start a gateway with TLS, which this client's realtime sessions always use."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "roots.pem")
    issued.private_key_pem.write_to_path(tmp_path / "server.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    gateway = Server(
        *("specwhisper_gateway", "--port", "0", "--server", demo_server, "--http-use-ssl"),
        *("--http-server-cert", str(tmp_path / "server.pem")),
        *("--http-server-key", str(tmp_path / "server.key")),
    )
    yield f"https://127.0.0.1:{gateway.port}"
    gateway.end()


@pytest.mark.skipif(not (NODE / "node_modules").exists(), reason="scripts/nightly integrations installs it")
def test_the_unmodified_client_transcribes(address, recording, tmp_path):
    samples, rate = soundfile.read(recording, dtype="float32")
    samples = soxr.resample(samples, rate, OPENAI_RATE)
    (tmp_path / "speech.pcm").write_bytes((samples.clip(-1, 1) * 32_767).astype("<i2").tobytes())
    run = subprocess.run(
        ["node", NODE / "transcribe.mjs", address, recording, tmp_path / "speech.pcm"],
        env=os.environ | {"NODE_EXTRA_CA_CERTS": str(tmp_path / "roots.pem")},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert run.returncode == 0, run.stderr
    texts = {shown["way"]: shown["text"] for shown in map(json.loads, run.stdout.splitlines())}
    assert texts == dict.fromkeys(("recording", "stream", "realtime"), SPOKEN_TEXT)
