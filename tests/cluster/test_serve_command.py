"""``specwhisper serve``: all servers of one machine from one command, and what is left where it is killed."""

import asyncio
import json
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc.aio
import psutil
import pytest
import yaml
from openai import OpenAI

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.rpc.addresses import bind_error
from specwhisper.rpc.channels import open_channel
from specwhisper.wire.v1 import discovery_pb2, verification_pb2_grpc
from specwhisper.wire.v1.discovery_pb2_grpc import DiscoveryStub
from specwhisper_deploy.command import DEMO, find_orphans
from tests.cluster.conftest import until
from tests.e2e.processes import run
from tests.rpc.hostile import hello
from tests.rpc.scrapes import parsed, scrape, value

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"
END = "End them by: "
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


def _as_flag(ports: range) -> str:
    return f"{ports[0]}-{ports[-1]}"


def transcribed_by(gateway: str) -> str:
    """Return the text of the sample, transcribed by a gateway."""
    with OpenAI(base_url=f"http://{gateway}/v1", api_key="-") as client:
        return client.audio.transcriptions.create(file=SAMPLE, model="whisper-1").text.strip()


@contextmanager
def serving(config: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run ``specwhisper serve``, and yield the process and its output once it is ready.

    A failed test stops it and shows all of its output.
    """
    command = [sys.executable, "-m", "specwhisper", "serve", str(config)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ready"):
                    break
            yield process, lines
        except BaseException as error:
            process.terminate()
            error.add_note("`specwhisper serve` printed:\n" + "".join([*lines, *process.stdout]))
            raise


async def open_session_at(locator: str) -> None:
    """Try to open a session at a locator, which refuses it."""
    async with open_channel(locator) as channel:
        call = verification_pb2_grpc.VerificationStub(channel).Verify(iter([hello()]))
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


def free_range(number: int) -> range:
    """Return consecutive ports that are free now."""
    while True:
        with ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with suppress(OSError, OverflowError):
                for port in range(first + 1, first + number):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
                return range(first, first + number)


async def list_servers(locator: str) -> set[str]:
    """Return the draft servers that a locator lists."""
    async with open_channel(locator) as channel:
        return set((await DiscoveryStub(channel).ListServers(discovery_pb2.ListServersRequest())).addresses)


def test_one_command_serves_and_drains(no_shared_ray, tmp_path, unused_tcp_port_factory):
    number = 2  # draft servers, and as many gateways
    locator, draft_locator, targets_at, drafts_at = (unused_tcp_port_factory() for _ in range(4))
    draft_ports, gateway_ports = free_range(number), free_range(number)
    config = yaml.safe_load(DEMO.read_text())
    targets, drafts, gateways = config["applications"]
    targets["args"]["locator"] |= {"port": locator, "metrics-port": targets_at}
    drafts["args"]["draft"] |= {"target": f"127.0.0.1:{locator}", "port": _as_flag(draft_ports)}
    drafts["args"]["locator"] |= {"port": draft_locator, "metrics-port": drafts_at}
    drafts["deployments"][0]["autoscaling_config"]["min_replicas"] = number
    gateways["args"]["gateway"] |= {
        "server": f"locator:///127.0.0.1:{draft_locator}",
        "port": _as_flag(gateway_ports),
    }
    gateways["deployments"][0]["num_replicas"] = number
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    with serving(tmp_path / "serve.yaml") as (process, lines):
        found_at = f"locator:///127.0.0.1:{draft_locator}"
        assert f"drafts at {found_at}\n" in lines
        gateway_addresses = [f"127.0.0.1:{port}" for port in gateway_ports]
        assert f"gateway at {', '.join(gateway_addresses)}\n" in lines
        draft_addresses = {f"127.0.0.1:{port}" for port in draft_ports}
        assert asyncio.run(list_servers(f"127.0.0.1:{draft_locator}")) == draft_addresses
        status, text, errors = run("specwhisper", "transcribe", str(SAMPLE), "--server", found_at, "--quiet")
        assert (status, errors) == (0, "")
        assert text
        for _ in range(2):  # the gateway's sessions take turns between two draft servers
            assert transcribed_by(gateway_addresses[0]).split() == text.split()
        metrics = ["--locator", f"127.0.0.1:{targets_at},127.0.0.1:{drafts_at}"]
        metrics += ["--metrics", ",".join(gateway_addresses)]
        status, table, errors = run("specwhisper", "top", *metrics, "--json")
        assert (status, errors) == (0, "")
        rows = json.loads(table)["servers"]
        assert Counter(row["kind"] for row in rows) == {"target": 1, "draft": number, "gateway": number}
        (target,) = (row for row in rows if row["kind"] == "target")
        assert target["tokens_per_forward"] >= 1.0, "it has transcribed"
        assert all(row["streams"] for row in rows if row["kind"] == "draft"), "each had a recording"
        asyncio.run(open_session_at(f"127.0.0.1:{locator}"))
        samples = parsed(asyncio.run(scrape(f"127.0.0.1:{targets_at}"))[0])
        assert value(samples, "specwhisper_locator_draining") == 0
        assert value(samples, "specwhisper_locator_errors_total", kind="InvalidRequest") == 1
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, "".join(lines) + rest
        assert '"message": "draining"' in rest


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
        status, output, errors = run("specwhisper", "serve", str(path))
    assert status == 1
    assert "the port is taken" in errors
    (line,) = (line for line in output.splitlines() if line.startswith("An earlier Ray on this machine"))
    subprocess.run(shlex.split(line.partition(END)[2]), check=True)
    await until(lambda: not find_orphans())
