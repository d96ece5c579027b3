"""``specwhisper serve`` deploys, waits, drains and ends, with a fake of Ray and after Ray is gone."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO
from math import inf
from types import SimpleNamespace

import psutil
import pytest
import yaml
from ray.exceptions import RayActorError
from ray.serve.schema import ServeDeploySchema
from rich.console import Console

from specwhisper.errors import InvalidRequest, PortTaken, TargetUnavailable
from specwhisper_deploy import command, forced_end
from specwhisper_deploy.command import DEMO, check_reachable, cluster
from specwhisper_deploy.forced_end import Signals


@pytest.mark.parametrize(
    ("application_message", "deployments", "words"),
    [
        ("Failed to update ['Draft'].", {"Draft": ("DEPLOY_FAILED", "Traceback ...\nE: no")}, "Draft: E: no"),
        ("Failed.", {"Draft": ("HEALTHY", "fine"), "Locator": ("UPDATING", "")}, "Failed."),
    ],
)
def test_the_error_of_an_application_is_its_deployments(application_message, deployments, words):
    states = {name: SimpleNamespace(status=s, message=message) for name, (s, message) in deployments.items()}
    failed = SimpleNamespace(status="DEPLOY_FAILED", message=application_message, deployments=states)
    assert command.start_error(failed) == words


def test_an_address_without_a_cluster_is_reported_at_once(unused_tcp_port):
    with pytest.raises(TargetUnavailable, match=f"No Ray cluster answers at '127.0.0.1:{unused_tcp_port}'"):
        check_reachable(f"127.0.0.1:{unused_tcp_port}")


def test_a_malformed_address_is_reported_on_one_line():
    with pytest.raises(TargetUnavailable, match="Cannot connect to the Ray cluster at 'nonsense'") as refused:
        with cluster("nonsense"):
            pass
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("error", [RayActorError(), TimeoutError("no answer"), ConnectionError("gone")])
def test_a_lost_cluster_ends_the_command_with_one_line(error, monkeypatch):
    def run(*_):
        raise error

    monkeypatch.setattr(command, "run", run)
    with pytest.raises(TargetUnavailable, match=r"^Ray was lost[^\n]+$"):
        command.main(None, None)


@pytest.mark.parametrize(
    ("command_line", "ancestors", "expected"),
    [
        ("ray::Agent", ["systemd"], True),
        ("ray::Agent", ["uv", "raylet", "python"], False),
        ("/usr/bin/raylet --node", ["systemd"], False),
        ("vim ray::notes", ["bash"], False),
    ],
)
def test_a_process_of_ray_without_a_raylet_is_an_orphan(command_line, ancestors, expected):
    assert command.is_orphan(command_line, ancestors) is expected


class FakeServe:
    """Applications that end after a number of polls; infinity means never.

    Parameters
    ----------
    starting : names of applications that do not run yet.
    """

    def __init__(self, *starting: str, **polls: float) -> None:
        self._polls = polls
        self._starting = starting
        self.deleted: list[str] = []
        self.is_shut_down = False

    def delete(self, name: str) -> None:
        self.deleted.append(name)

    def deploy(self, schema: ServeDeploySchema) -> None:
        self._polls = dict.fromkeys((each.name for each in schema.applications), 0)

    def status(self) -> SimpleNamespace:
        for name in self.deleted[-1:]:
            self._polls[name] -= 1
        states = {name: "DEPLOYING" if name in self._starting else "RUNNING" for name in self._polls}
        there = {name: SimpleNamespace(status=states[name]) for name, n in self._polls.items() if n >= 0}
        return SimpleNamespace(applications=there)

    def shutdown(self) -> None:
        self.is_shut_down = True


def use_serve(monkeypatch, serve: FakeServe, drain_s: float = 3600.0) -> FakeServe:
    """Replace Serve by a fake whose replicas may take ``drain_s`` to end."""
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command.compat, "start_deleting", serve.delete)
    monkeypatch.setattr(command.compat, "graceful_shutdown_timeouts", lambda _: [drain_s])
    return serve


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=200)


@pytest.mark.parametrize("is_all", [False, True])
def test_applications_end_in_reverse_order(monkeypatch, console, is_all):
    monkeypatch.setattr(command, "POLL_S", 0.0)
    serve = use_serve(monkeypatch, FakeServe(a=2, b=3))
    command.end(["a", "b"], Signals(), console, is_all=is_all)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], is_all)
    assert console.file.getvalue() == ""


def test_an_application_that_does_not_end_is_reported_and_left(monkeypatch, console):
    serve = use_serve(monkeypatch, FakeServe(a=0, b=inf), drain_s=0.0)
    monkeypatch.setattr(command, "END_MARGIN_S", 0.01)
    command.end(["a", "b"], Signals(), console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], True)
    assert "Application 'b' has not ended within 0.01 s" in console.file.getvalue()
    assert "'a'" not in console.file.getvalue()


def test_an_application_that_never_ran_is_not_waited_for(monkeypatch, console):
    serve = use_serve(monkeypatch, FakeServe("b", a=2, b=inf))
    command.end(["a", "b"], Signals(), console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], False)  # a shutdown would wait for it
    assert console.file.getvalue() == ""


@pytest.fixture
def signals(monkeypatch):
    """Catch signals; restore the earlier handlers afterwards."""
    monkeypatch.setattr(forced_end, "POLL_S", 0.01)
    monkeypatch.setattr(forced_end, "HURRY_S", inf)  # the process of the tests stays
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Signals() as signals:
        signals.catch()
        yield signals
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_second_signal_waits_for_no_drain(monkeypatch, console, signals):
    serve = use_serve(monkeypatch, FakeServe(a=inf, b=inf))
    signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGINT))
    command.end(["a", "b"], signals, console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], False)
    assert console.file.getvalue() == ""


@pytest.fixture
def running(monkeypatch, signals) -> FakeServe:
    """Fake a cluster that runs ``a`` of the file, and an application of another."""
    serve = use_serve(monkeypatch, FakeServe(a=0, other=0))
    monkeypatch.setattr(command, "deploy", serve.deploy)
    monkeypatch.setattr(command, "cluster", lambda _: nullcontext())
    monkeypatch.setattr(command, "addresses", lambda _: {})
    return serve


@pytest.fixture
def file(tmp_path):
    """Write a configuration file with the applications ``a`` and ``b``."""
    names = [{"name": name, "import_path": f"theirs:{name}", "route_prefix": None} for name in "ab"]
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump({"applications": names}))
    return path


@pytest.mark.parametrize("step", ["deploy", "wait_until_running"])
def test_a_failed_start_leaves_applications_that_ran_before(monkeypatch, running, file, step):
    def fail(schema, *_):
        running.deploy(schema)
        raise TargetUnavailable("no room")

    monkeypatch.setattr(command, step, fail)
    with pytest.raises(TargetUnavailable, match="no room"):
        command.run(file, "auto")
    assert running.deleted == ["b"]


def test_a_signal_ends_all_applications_and_those_that_ran_before_are_named(
    monkeypatch, running, file, capsys
):
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    command.run(file, "auto")
    assert running.deleted == ["b", "a"]
    (line, *_) = capsys.readouterr().out.splitlines()
    assert line.startswith("Ray Serve runs already: a, other. ")
    assert line.endswith("RAY_AUTH_MODE=token serve shutdown --yes")


@pytest.mark.parametrize("address", [None, "auto"])
def test_orphans_of_this_machine_are_named_before_ports_are_checked(
    monkeypatch, running, file, capsys, address
):
    def taken(_: ServeDeploySchema) -> None:
        raise PortTaken("Cannot listen")

    monkeypatch.setattr(command, "find_orphans", lambda: {7: "ray::Agent", 8: "ray::Other", 9: "ray::Agent"})
    monkeypatch.setattr(command, "check_ports", taken)
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(PortTaken) if address is None else nullcontext():
        command.run(file, address)
    sentence = "has left ray::Agent, ray::Other. End them by: kill -9 7 8 9\n"
    assert (sentence in capsys.readouterr().out) == (address is None)


def test_a_file_is_checked_before_a_cluster_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "cluster", lambda _: pytest.fail("it was asked"))
    path = tmp_path / "wrong.yaml"
    path.write_text(DEMO.read_text().replace("model:", "modle:"))
    with pytest.raises(InvalidRequest, match="No such option: --modle"):
        command.run(path, "auto")


HANDLED = """
import signal
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda *_: None)
"""
# The main thread waits in a call of C that handles no signals, as Ray's do; below it is a process.
WAITING = """
import ctypes, subprocess, sys
from specwhisper_deploy import forced_end
forced_end.LOST_S = float(sys.argv[1])
forced_end.POLL_S, forced_end.HURRY_S = 0.02, 0.06
lives = (lambda: True) if sys.argv[2] == "lives" else (lambda: ctypes.CDLL(None).pause())
with forced_end.Signals(lives):
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    wait = ctypes.CDLL(None).pause
    while True:
        wait()
"""


@contextmanager
def waiting(lost_s: float, how: str) -> Iterator[subprocess.Popen]:
    """Yield a process that waits; at the end its own process must have ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", HANDLED + WAITING, str(lost_s), how]
    with subprocess.Popen(command, **pipes, text=True) as process:
        child = psutil.Process(int(process.stdout.readline()))
        yield process
        child.wait(5)


def test_a_second_signal_ends_it_within_two_seconds_and_leaves_nothing():
    assert forced_end.HURRY_S + 2 * forced_end.POLL_S < 2
    with waiting(60, "lives") as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):  # the first signal drains
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_it_ends_with_a_status_and_a_reason_once_ray_is_gone():
    with waiting(0.2, "hangs") as process:
        assert process.wait(10) == 1
        reason = "specwhisper serve: Ray is gone, or has not answered for 0.2 s: "
        assert process.stderr.read().startswith(reason)
