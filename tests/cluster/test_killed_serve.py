"""``kill -9`` of ``specwhisper serve``: the next one says what Ray has left, and how to end it."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys

import psutil
import pytest
import yaml

from specwhisper.rpc.addresses import bind_error
from specwhisper_deploy.command import DEMO
from specwhisper_deploy.leftovers import left_over, processes
from tests.cluster.test_serve_command import serving
from tests.e2e.processes import run
from tests.rpc.services import eventually

END = "End them by: "

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(300),
]


def number_left() -> int:
    return len(left_over(processes()))


async def test_the_next_start_says_what_is_left_and_how_to_end_it(tmp_path, unused_tcp_port):
    config = yaml.safe_load(DEMO.read_text())
    gateway = config["applications"][-1]
    gateway["args"]["gateway"]["port"] = unused_tcp_port
    config["applications"] = [gateway]
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    before = number_left()
    with serving([sys.executable, "-m", "specwhisper_client.cli.main", "serve", str(path)]) as process:
        for line in process.stdout:
            if line.startswith("Ready"):
                break
        (raylet,) = (each for each in psutil.Process(process.pid).children() if each.name() == "raylet")
        process.kill()
    # The gateway notices a moment later, and leaves its port.
    await eventually(lambda: bind_error("127.0.0.1", unused_tcp_port) is None, within_s=60.0)
    assert not raylet.is_running()
    assert number_left() > before
    with socket.create_server(("127.0.0.1", unused_tcp_port)):  # ends the next start before Ray's
        status, said, errors = run("specwhisper_client.cli.main", "serve", str(path))
    assert status == 1
    assert "the port is taken" in errors
    (line,) = (line for line in said.splitlines() if line.startswith("An earlier Ray on this machine"))
    subprocess.run(shlex.split(line.partition(END)[2]), check=True)
    await eventually(lambda: number_left() == 0, within_s=60.0)
