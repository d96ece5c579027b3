"""What stands in a configuration file, and what is done with it."""

from __future__ import annotations

import signal
import socket
from contextlib import nullcontext
from io import StringIO
from math import inf
from types import SimpleNamespace

import pytest
import yaml
from pydantic import ValidationError
from ray.exceptions import RayActorError
from ray.serve.deployment import deployment_to_schema
from ray.serve.schema import ServeDeploySchema
from rich.console import Console

from specwhisper.cli.command_lines import config_from
from specwhisper.errors import InvalidRequest, PortTaken, TargetUnavailable, UnsafeBind
from specwhisper_deploy import command, serve_app
from specwhisper_deploy.command import (
    DEMO,
    Signals,
    check,
    check_hosts,
    check_ports,
    check_reachable,
    cluster,
    last_line,
    read_schema,
)
from specwhisper_deploy.leftovers import Process
from specwhisper_target_server.command import read_config

MACHINES = ("192.0.2.1", "192.0.2.2")


def test_the_bundled_file_is_one_that_ray_and_our_servers_understand():
    schema = read_schema(DEMO)
    assert schema == ServeDeploySchema.model_validate(yaml.safe_load(DEMO.read_text()))
    for application in schema.applications:
        module, _, builder = application.import_path.partition(":")
        assert module == "specwhisper_deploy.serve_app"
        getattr(serve_app, builder)(application.args)
        assert {each.name for each in application.deployments} <= {"Target", "Locator", "Draft", "Gateway"}


@pytest.mark.parametrize(
    ("args", "kind", "words"),
    [
        ({"target": {"modle": "large-v3"}}, InvalidRequest, "No such option: --modle"),
        ({"target": {"max-sessions": 0}}, InvalidRequest, "max-sessions"),
        ({"target": {"max-sessions": "many"}}, InvalidRequest, "max-sessions"),
        ({"targets": {}}, ValidationError, "targets"),
        ({"locator": {"model": "large-v3"}}, InvalidRequest, "A locator has no flag model"),
        ({"target": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
        ({"locator": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
        ({"target": {"grpc-use-ssl": True}}, InvalidRequest, "--grpc-server-cert"),
    ],
)
def test_what_a_file_has_wrong_is_told_before_anything_starts(args, kind, words):
    with pytest.raises(kind, match=words):
        serve_app.targets(args)


def test_flags_in_a_file_are_those_of_the_command_line():
    flags = {"max-sessions": 3, "insecure": True, "host": "0.0.0.0", "cores": "0,1", "device-map": None}
    config = config_from(read_config, flags)
    assert config.limits.max_sessions == 3
    assert (config.serving.host, config.serving.insecure, config.cores) == ("0.0.0.0", True, (0, 1))
    assert not config_from(read_config, {"insecure": False}).serving.insecure


def test_a_file_that_is_none_is_told_by_name(tmp_path):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_schema(tmp_path / "missing.yaml")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("applications: 3")
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is no configuration .* applications: \w+"):
        read_schema(wrong)
    wrong.write_text("")
    with pytest.raises(InvalidRequest, match="Serve: all of it: "):
        read_schema(wrong)
    wrong.write_text("applications: [")
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is no YAML: [^\n]+$"):
        read_schema(wrong)


def deployments_of(application):
    """What Ray is told of each deployment, by name."""
    deployment = application._bound_deployment
    told = {deployment.name: deployment_to_schema(deployment)}
    for each in deployment.init_args:
        if isinstance(each, serve_app.Application):
            told |= deployments_of(each)
    return told


@pytest.mark.parametrize(
    ("build", "args", "names"),
    [
        ("targets", {}, {"Locator"}),
        ("targets", {"target": {"metrics-port": 0}, "locator": {"port": 0}}, set()),
        ("targets", {"target": {"metrics-port": 9464}}, {"Locator", "Target"}),
        ("targets", {"target": {"port": 50052}}, {"Locator", "Target"}),
        ("drafts", {}, {"Draft"}),
        ("drafts", {"draft": {"port": 0}}, set()),
        ("drafts", {"draft": {"port": 0, "metrics-port": 9464}}, {"Draft"}),
        ("drafts", {"draft": {"port": 0}, "locator": {"port": 50050}}, {"Locator"}),
        ("drafts", {"draft": {"port": 0}, "locator": {"port": 0}}, set()),
        ("gateway", {}, {"Gateway"}),
        ("gateway", {"gateway": {"port": 0, "metrics-port": 0}}, set()),
    ],
)
def test_where_a_port_is_fixed_a_node_has_one_replica(build, args, names):
    told = deployments_of(getattr(serve_app, build)(args))
    assert {name for name, deployment in told.items() if deployment.max_replicas_per_node == 1} == names


@pytest.mark.parametrize(
    ("build", "args", "name"),
    [
        ("targets", {"target": {"port": "50053-50055"}}, "Target"),
        ("drafts", {"draft": {"port": "50051-50053", "metrics-port": 0}, "locator": {"port": 0}}, "Draft"),
        ("gateway", {"gateway": {"port": "8000-8002", "metrics-port": "9000-9002"}}, "Gateway"),
    ],
)
def test_a_node_has_as_many_replicas_as_ports(build, args, name):
    assert deployments_of(getattr(serve_app, build)(args))[name].max_replicas_per_node == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"locator": {}}, "The locator of draft servers needs a port"),
        (
            {"locator": {"port": 50050, "draft-model": "tiny"}},
            "A locator has no flag draft-model.* draft server",
        ),
        ({"draft": {"port": "50051-50050"}}, "write a port, 0 for a free one, or a range"),
    ],
)
def test_what_draft_servers_have_wrong_is_reported_before_anything_starts(args, words):
    with pytest.raises(InvalidRequest, match=words):
        serve_app.drafts(args)


def test_the_locator_of_draft_servers_lets_in_whom_they_let_in():
    application = serve_app.drafts(
        {"draft": {"insecure": True, "host": "0.0.0.0"}, "locator": {"port": 50050}}
    )
    flags, _ = application._bound_deployment.init_args
    assert flags == {"insecure": True, "host": "0.0.0.0", "port": 50050}


@pytest.mark.parametrize(
    ("build", "args", "drains"),
    [
        ("targets", {"target": {"drain-timeout": 60}}, {"Target": 60.0, "Locator": 30.0}),
        ("drafts", {"draft": {"drain-timeout": 60}}, {"Draft": 60.0}),
        (
            "drafts",
            {"draft": {"drain-timeout": 60}, "locator": {"port": 50050}},
            {"Draft": 60.0, "Locator": 30.0},
        ),
        ("gateway", {"gateway": {"drain-timeout": 60}}, {"Gateway": 60.0}),
    ],
)
def test_nobody_is_killed_who_still_drains(build, args, drains):
    told = deployments_of(getattr(serve_app, build)(args))
    graces = {name: deployment.graceful_shutdown_timeout_s for name, deployment in told.items()}
    assert graces == {name: drain_s + serve_app.STOP_MARGIN_S for name, drain_s in drains.items()}


def application(**changes):
    told = {
        "name": "targets",
        "import_path": "specwhisper_deploy.serve_app:targets",
        "route_prefix": None,
    } | changes
    return ServeDeploySchema.model_validate({"applications": [told]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": {"target": {"modle": "large-v3"}}}, "Application 'targets': No such option: --modle"),
        ({"args": {"targets": {}}}, "Arguments of 'targets': targets: "),
        (
            {"import_path": "specwhisper_deploy.serve_app:tragets"},
            "there is no specwhisper_deploy.serve_app:tragets",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_line_before_ray_starts(changes, words):
    with pytest.raises(InvalidRequest, match=words) as refused:
        check(application(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "flags",
    [
        {"tokens-file": "/nowhere"},
        {"device-map": "/nowhere"},
        {"grpc-use-ssl": True, "grpc-server-cert": "/nowhere", "grpc-server-key": "/nowhere"},
    ],
)
def test_files_that_flags_name_may_be_on_other_machines(flags):
    with pytest.raises(InvalidRequest, match="/nowhere cannot be read"):
        check(application(args={"target": flags}))
    check(application(args={"target": flags}), is_here=False)
    with pytest.raises(InvalidRequest, match="No such option: --modle"):
        check(application(args={"target": flags | {"modle": "large-v3"}}), is_here=False)


def test_a_file_that_is_here_is_read_wherever_the_cluster_is(tmp_path):
    (tmp_path / "tokens").write_text("anna short\n")
    with pytest.raises(InvalidRequest, match="a token has 16"):
        check(application(args={"target": {"tokens-file": str(tmp_path / "tokens")}}), is_here=False)


@pytest.mark.parametrize("flag", ["port", "metrics-port"])
def test_a_port_that_is_taken_is_told_before_ray_starts(flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        args = {"locator": {flag: taken.getsockname()[1]}}
        with pytest.raises(PortTaken, match=f"127.0.0.1:{args['locator'][flag]}"):
            check_ports(application(args=args))
    check_ports(application(args=args))


def test_a_range_of_ports_is_taken_only_where_all_of_them_are():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_ports(application(args={"draft": {"port": f"{port - 1}-{port}"}}))
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
            check_ports(application(args={"draft": {"port": f"{port}-{port}"}}))


def test_applications_of_others_are_theirs_to_check():
    theirs = application(import_path="theirs.module:app")
    check(theirs)
    check_hosts(theirs, MACHINES)


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        ({}, UnsafeBind, "2 machines, .* needs encryption and tokens"),
        ({"host": "127.0.0.1"}, InvalidRequest, "The host is 127.0.0.1, and the cluster has 2 machines"),
    ],
)
def test_a_host_that_other_machines_do_not_reach_is_refused_before_replicas_start(flags, kind, words):
    with pytest.raises(kind, match=f"Application 'targets': .*{words}"):
        check_hosts(application(args={"target": flags}), MACHINES)
    check_hosts(application(args={"target": flags}), MACHINES[:1])


@pytest.mark.parametrize("flags", [{"insecure": True}, {"tokens-file": "/nowhere"}])
def test_a_host_that_they_reach_is_not(flags):
    check_hosts(application(args={"target": flags}), MACHINES)


@pytest.mark.parametrize(
    ("application_message", "deployments", "words"),
    [
        ("Failed to update ['Draft'].", {"Draft": ("DEPLOY_FAILED", "Traceback ...\nE: no")}, "Draft: E: no"),
        (
            "Failed to update.",
            {"Draft": ("HEALTHY", "fine"), "Locator": ("UPDATING", "")},
            "Failed to update.",
        ),
    ],
)
def test_an_application_that_does_not_start_says_what_its_deployment_says(
    application_message, deployments, words
):
    states = {name: SimpleNamespace(status=s, message=message) for name, (s, message) in deployments.items()}
    failed = SimpleNamespace(status="DEPLOY_FAILED", message=application_message, deployments=states)
    assert command.why_not(failed) == words


def test_an_address_without_a_cluster_is_told_at_once(unused_tcp_port):
    with pytest.raises(TargetUnavailable, match=f"No Ray cluster answers at '127.0.0.1:{unused_tcp_port}'"):
        check_reachable(f"127.0.0.1:{unused_tcp_port}")


def test_no_way_to_a_cluster_is_told_in_a_line():
    with pytest.raises(TargetUnavailable, match="no way to the Ray cluster at 'nonsense'") as refused:
        with cluster("nonsense"):
            pass
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("error", [RayActorError(), TimeoutError("no answer"), ConnectionError("gone")])
def test_a_cluster_that_is_lost_ends_the_command_with_a_line(error, monkeypatch):
    def run(*_):
        raise error

    monkeypatch.setattr(command, "run", run)
    with pytest.raises(SystemExit, match=r"^specwhisper serve: Ray was lost[^\n]+$"):
        command.main(None, None)


def test_of_a_traceback_the_end_is_told():
    assert last_line("Traceback (most recent call last):\n  File ...\nValueError: no\n") == "ValueError: no"
    assert last_line("") == ""


class Ending:
    """Stands for Serve, where applications end once they were asked for so often, or never."""

    def __init__(self, *starting: str, **looks: float) -> None:
        self._looks = looks
        self._starting = starting
        self.deleted: list[str] = []
        self.is_shut_down = False

    def delete(self, name: str, *, _blocking: bool) -> None:
        self.deleted.append(name)

    def status(self) -> SimpleNamespace:
        if self.deleted:
            self._looks[self.deleted[-1]] -= 1
        states = {name: "DEPLOYING" if name in self._starting else "RUNNING" for name in self._looks}
        there = {name: SimpleNamespace(status=states[name]) for name, n in self._looks.items() if n >= 0}
        return SimpleNamespace(applications=there)

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.mark.parametrize("is_all", [False, True])
def test_applications_end_one_after_the_other(monkeypatch, is_all):
    serve = Ending(a=2, b=3)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 60.0)
    console = Console(file=StringIO())
    command.end(["a", "b"], Signals(), console, is_all=is_all)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], is_all)
    assert console.file.getvalue() == ""


def test_an_application_that_does_not_end_is_told_of_and_left(monkeypatch):
    serve = Ending(a=0, b=inf)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 0.0)
    monkeypatch.setattr(command, "END_MARGIN_S", 0.01)
    console = Console(file=StringIO(), width=200)
    command.end(["a", "b"], Signals(), console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], True)
    assert "Application 'b' has not ended within 0.01 s" in console.file.getvalue()
    assert "'a'" not in console.file.getvalue()


def test_what_has_never_run_is_not_waited_for(monkeypatch):
    serve = Ending("b", a=2, b=inf)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 3600.0)
    console = Console(file=StringIO())
    command.end(["a", "b"], Signals(), console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], False)  # which would wait for it
    assert console.file.getvalue() == ""


@pytest.fixture
def signals():
    """Whoever is told of SIGTERM and SIGINT is no longer told behind the test."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signals = Signals()
    signals.catch()
    yield signals
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_who_is_in_a_hurry_waits_for_nobody(monkeypatch, signals, second):
    serve = Ending(a=inf, b=inf)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 3600.0)
    signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(second))
    console = Console(file=StringIO())
    command.end(["a", "b"], signals, console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], False)
    assert console.file.getvalue() == ""


class Serving:
    """Stands for Serve on a cluster of others, with an application of this file and one of another."""

    def __init__(self) -> None:
        self.applications = {"a", "other"}
        self.deleted: list[str] = []

    def deploy(self, schema: ServeDeploySchema) -> None:
        self.applications = {application.name for application in schema.applications}

    def status(self) -> SimpleNamespace:
        running = SimpleNamespace(status="RUNNING")
        return SimpleNamespace(applications=dict.fromkeys(self.applications, running))

    def delete(self, name: str, *, _blocking: bool) -> None:
        self.deleted.append(name)
        self.applications.remove(name)


@pytest.fixture
def serving(monkeypatch, signals):
    serving = Serving()
    monkeypatch.setattr(command, "serve", serving)
    monkeypatch.setattr(command, "deploy", serving.deploy)
    monkeypatch.setattr(command, "cluster", lambda _: nullcontext())
    monkeypatch.setattr(command, "addresses", lambda _: {})
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 0.0)
    return serving


@pytest.fixture
def both(tmp_path):
    """A file with two applications."""
    names = [{"name": name, "import_path": f"theirs:{name}", "route_prefix": None} for name in "ab"]
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump({"applications": names}))
    return path


def test_what_a_file_names_ends_with_a_signal(monkeypatch, serving, both):
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    command.run(both, "auto")
    assert serving.deleted == ["b", "a"]


@pytest.mark.parametrize("step", ["deploy", "wait_until_running"])
def test_where_it_does_not_start_what_ran_before_is_left(monkeypatch, serving, both, step):
    def fail(schema, *_):
        serving.deploy(schema)
        raise TargetUnavailable("no room")

    monkeypatch.setattr(command, step, fail)
    with pytest.raises(TargetUnavailable, match="no room"):
        command.run(both, "auto")
    assert serving.deleted == ["b"]


def test_what_runs_before_is_reported_with_what_becomes_of_it(monkeypatch, serving, both, capsys):
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    command.run(both, "auto")
    (line, *_) = capsys.readouterr().out.splitlines()
    assert line.startswith("Ray Serve runs already: a, other. ")
    assert line.endswith("RAY_AUTH_MODE=token serve shutdown --yes")


@pytest.mark.parametrize("address", [None, "auto"])
def test_what_a_killed_ray_has_left_here_is_reported_before_ports_are_taken(
    monkeypatch, serving, both, capsys, address
):
    def taken(_: ServeDeploySchema) -> None:
        raise PortTaken("Cannot listen")

    orphan = Process(7, "ray::DashboardAgent", ("systemd",))
    monkeypatch.setattr(command.leftovers, "processes", lambda: [orphan])
    monkeypatch.setattr(command, "check_ports", taken)
    monkeypatch.setattr(command, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(PortTaken) if address is None else nullcontext():
        command.run(both, address)
    assert ("End them by: kill -9 7\n" in capsys.readouterr().out) == (address is None)


def test_a_file_is_checked_before_a_cluster_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "cluster", lambda _: pytest.fail("it was asked"))
    path = tmp_path / "wrong.yaml"
    wrong = {
        "name": "a",
        "import_path": "specwhisper_deploy.serve_app:targets",
        "args": {"target": {"modle": "x"}},
    }
    path.write_text(yaml.safe_dump({"applications": [wrong]}))
    with pytest.raises(InvalidRequest, match="No such option: --modle"):
        command.run(path, "auto")
