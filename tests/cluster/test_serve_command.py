"""``specwhisper serve``: everything on one machine, from one command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import yaml

from deploy.command import DEMO
from specwhisper.whisper.checkpoint import DEMO_FOLDER
from tests.e2e.processes import run

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"


@pytest.mark.timeout(300)
def test_one_command_serves_and_drains(tmp_path, unused_tcp_port_factory):
    front, draft, gateway = (unused_tcp_port_factory() for _ in range(3))
    config = yaml.safe_load(DEMO.read_text())
    targets, drafts, gateways = config["applications"]
    targets["args"]["front"]["port"] = front
    drafts["args"]["draft"] |= {"target": f"127.0.0.1:{front}", "port": draft}
    gateways["args"]["gateway"] |= {"server": f"127.0.0.1:{draft}", "port": gateway}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "client.cli", "serve", str(tmp_path / "serve.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("Ready"):
                break
        assert f"gateway at 127.0.0.1:{gateway}\n" in said
        status, text, errors = run(
            "client.cli", "transcribe", str(SAMPLE), "--server", f"127.0.0.1:{draft}", "--quiet"
        )
        assert (status, errors) == (0, "")
        assert text
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, "".join(said) + rest
        assert '"message": "draining"' in rest
