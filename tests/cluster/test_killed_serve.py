"""``kill -9`` of ``specwhisper serve``: the next start names the processes left and how to end them."""

import shlex
import socket
import subprocess

import psutil
import pytest
import yaml

from specwhisper.rpc.addresses import bind_error
from specwhisper_deploy.command import DEMO, find_orphans
from tests.cluster.conftest import until
from tests.cluster.test_serve_command import serving
from tests.e2e.processes import run

END = "End them by: "

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(300),
]


async def test_the_next_start_names_orphans_and_how_to_end_them(no_shared_ray, tmp_path, unused_tcp_port):
    config = yaml.safe_load(DEMO.read_text())
    gateway = config["applications"][-1]
    gateway["args"]["gateway"]["port"] = unused_tcp_port
    config["applications"] = [gateway]
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    before = find_orphans()
    with serving(path) as (process, _):
        (raylet,) = (each for each in psutil.Process(process.pid).children() if each.name() == "raylet")
        process.kill()
    # The gateway notices a moment later, and frees its port.
    await until(lambda: bind_error("127.0.0.1", unused_tcp_port) is None)
    assert not raylet.is_running()
    assert find_orphans().keys() - before.keys()
    with socket.create_server(("127.0.0.1", unused_tcp_port)):  # so that the next start ends before Ray's
        status, output, errors = run("specwhisper_client.cli.main", "serve", str(path))
    assert status == 1
    assert "the port is taken" in errors
    (line,) = (line for line in output.splitlines() if line.startswith("An earlier Ray on this machine"))
    subprocess.run(shlex.split(line.partition(END)[2]), check=True)
    await until(lambda: not find_orphans())
