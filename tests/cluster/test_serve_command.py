"""``specwhisper serve``: everything on one machine, from one command."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import grpc.aio
import pytest
import yaml

from deploy.command import DEMO
from specwhisper.whisper.checkpoint import DEMO_FOLDER
from specwhisper.wire.channels import open_channel
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.e2e.processes import run
from tests.rpc.hostile import hello
from tests.rpc.scrapes import parsed, scrape, value

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"


async def be_refused(front: str) -> None:
    """Ask a front for a session, which it does not have."""
    async with open_channel(front) as channel:
        call = verification_pb2_grpc.VerificationStub(channel).Verify(iter([hello()]))
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


@pytest.mark.timeout(300)
def test_one_command_serves_and_drains(tmp_path, unused_tcp_port_factory):
    front, draft, gateway, targets_at, draft_metrics = (unused_tcp_port_factory() for _ in range(5))
    config = yaml.safe_load(DEMO.read_text())
    targets, drafts, gateways = config["applications"]
    targets["args"]["front"] |= {"port": front, "metrics-port": targets_at}
    drafts["args"]["draft"] |= {
        "target": f"127.0.0.1:{front}",
        "port": draft,
        "metrics-port": draft_metrics,
    }
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
        metrics = ["--front", f"127.0.0.1:{targets_at}"]
        metrics += ["--metrics", f"127.0.0.1:{draft_metrics},127.0.0.1:{gateway}"]
        status, told, errors = run("client.cli", "top", *metrics, "--json")
        assert (status, errors) == (0, "")
        rows = {row["kind"]: row for row in json.loads(told)["servers"]}
        assert set(rows) == {"target", "draft", "gateway"}
        assert rows["target"]["tokens_per_pass"] >= 1.0, "it has written the text"
        asyncio.run(be_refused(f"127.0.0.1:{front}"))
        samples = parsed(asyncio.run(scrape(f"127.0.0.1:{targets_at}"))[0])
        assert value(samples, "specwhisper_front_draining") == 0
        assert value(samples, "specwhisper_front_errors_total", kind="InvalidRequest") == 1
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, "".join(said) + rest
        assert '"message": "draining"' in rest
