"""Where sessions go, how many targets there are, and what stands in a configuration file."""

from __future__ import annotations

import signal
import socket
from contextlib import nullcontext
from io import StringIO
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from ray.exceptions import RayActorError
from ray.serve.deployment import deployment_to_schema
from ray.serve.schema import ServeDeploySchema
from rich.console import Console

from deploy import command, serve_app
from deploy.command import (
    DEMO,
    Signals,
    check,
    check_ports,
    check_reachable,
    cluster,
    last_line,
    read_schema,
)
from deploy.routing import (
    HAS_ROOM,
    OPEN_SESSIONS,
    OPENS_SESSION,
    SILENT_S,
    UNANSWERED_S,
    LeastSessions,
    RecentPicks,
    Silent,
)
from deploy.scaling import BySessions
from specwhisper.errors import InvalidRequest, PortTaken, TargetUnavailable, UnsafeBind
from specwhisper.wire.command_lines import config_from
from target_server.__main__ import read_config

ROOT = Path(__file__).parents[2]


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_picks_are_remembered_for_a_while():
    clock = Clock()
    recent = RecentPicks(1.5, clock=clock)
    recent.note("a", "first")
    clock.now_s = 1.0
    recent.note("b", "second")
    assert recent.count() == {"first": 1, "second": 1}
    clock.now_s = 1.5
    assert recent.count() == {"second": 1}
    clock.now_s = 2.5
    assert recent.count() == {}


def test_a_question_that_is_asked_again_is_one_pick():
    clock = Clock()
    recent = RecentPicks(1.5, clock=clock)
    recent.note("a", "first")
    recent.note("b", "first")
    clock.now_s = 1.0
    recent.note("a", "second")
    assert recent.count() == {"first": 1, "second": 1}
    clock.now_s = 2.0
    assert recent.count() == {"second": 1}


def test_who_leaves_a_question_unanswered_is_silent_until_it_answers_another_in_time():
    clock = Clock()
    silent = Silent(0.5, 10.0, clock=clock)
    silent.note("a", "first")
    silent.note("b", "second")
    silent.hear("b", "second")
    clock.now_s = 0.4
    assert silent.names() == set()
    clock.now_s = 0.5
    assert silent.names() == {"first"}
    clock.now_s = 0.7
    silent.hear("a", "first")  # so ends a question that was given up, too
    assert silent.names() == {"first"}
    silent.note("c", "first")
    silent.hear("c", "first")
    assert silent.names() == set()


def test_who_was_silent_is_asked_again_later():
    clock = Clock()
    silent = Silent(0.5, 10.0, clock=clock)
    silent.note("a", "first")
    clock.now_s = 9.9
    assert silent.names() == {"first"}
    clock.now_s = 10.0
    assert silent.names() == set()
    silent.hear("a", "first")  # long forgotten
    assert silent.names() == set()


class Routing:
    """A router of targets, as Ray asks it and tells it of answers."""

    def __init__(self, **sessions: int | None) -> None:
        self.clock = Clock()
        self._router = object.__new__(LeastSessions)  # the rest of it needs a cluster
        self._router.initialize_state(clock=self.clock)
        self._replicas = [
            SimpleNamespace(
                replica_id=name, routing_stats={OPEN_SESSIONS: number or 0, HAS_ROOM: number is not None}
            )
            for name, number in sessions.items()
        ]

    async def ask(self, question: str, method: str = OPENS_SESSION) -> list[str]:
        """Give the targets in the order in which they are asked."""
        metadata = SimpleNamespace(call_method=method, internal_request_id=question)
        ranked = await self._router.choose_replicas(self._replicas, SimpleNamespace(metadata=metadata))
        return [replica.replica_id for [replica] in ranked]

    def answer(self, question: str, name: str) -> None:
        self._router.on_request_completed(name, question)


async def test_sessions_go_to_who_has_the_fewest_and_who_is_full_comes_last():
    routing = Routing(many=5, few=3, full=None)
    assert await routing.ask("a") == ["few", "many", "full"]
    routing.answer("a", "few")
    assert await routing.ask("b") == ["few", "many", "full"]
    routing.answer("b", "few")
    assert (await routing.ask("c"))[2] == "full"  # as many as the other, with those to be opened soon


@pytest.mark.parametrize("method", [OPENS_SESSION, "describe"])
async def test_who_leaves_a_question_unanswered_is_asked_last(method):
    routing = Routing(hangs=0, works=5, full=None)
    assert await routing.ask("a", method) == ["hangs", "works", "full"]
    routing.clock.now_s = UNANSWERED_S
    assert await routing.ask("b", method) == ["works", "full", "hangs"]
    routing.answer("b", "works")
    assert await routing.ask("c", method) == ["works", "full", "hangs"]
    routing.answer("c", "works")
    routing.clock.now_s = SILENT_S
    assert await routing.ask("d", method) == ["hangs", "works", "full"]
    routing.answer("d", "hangs")
    routing.clock.now_s = SILENT_S + UNANSWERED_S
    assert await routing.ask("e", method) == ["hangs", "works", "full"]


@pytest.mark.parametrize(
    ("sessions", "answer_ms", "wanted"),
    [
        ({}, {}, 0),
        ({"a": 0}, {"a": 0}, 0),
        ({"a": 4}, {"a": 50}, 1),
        ({"a": 5}, {"a": 50}, 2),
        ({"a": 4, "b": 1}, {"a": 50, "b": 50}, 2),
        ({"a": 4}, {"a": 101}, 2),  # fuller than it is
        ({"a": 8, "b": 8}, {"a": 300, "b": 100}, 8),
    ],
)
def test_so_many_targets_as_sessions_and_their_waiting_ask_for(sessions, answer_ms, wanted):
    assert BySessions(sessions_per_replica=4, answer_ms=100).wanted(sessions, answer_ms) == wanted


@given(st.dictionaries(st.integers(), st.integers(0, 100)), st.integers(1, 20))
def test_without_a_bound_on_waiting_only_sessions_count(sessions, per_replica):
    wanted = BySessions(per_replica).wanted(sessions, dict.fromkeys(sessions, 1e6))
    assert wanted * per_replica >= sum(sessions.values()) > (wanted - 1) * per_replica or wanted == 0


def test_no_sessions_on_a_target_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        BySessions(0)


def test_the_bundled_file_is_one_that_ray_and_our_servers_understand():
    schema = read_schema(DEMO)
    assert schema == ServeDeploySchema.model_validate(yaml.safe_load(DEMO.read_text()))
    for application in schema.applications:
        module, _, builder = application.import_path.partition(":")
        assert module == "deploy.serve_app"
        getattr(serve_app, builder)(application.args)
        assert {each.name for each in application.deployments} <= {"Target", "Front", "Draft", "Gateway"}


@pytest.mark.parametrize(
    ("args", "kind", "words"),
    [
        ({"target": {"modle": "large-v3"}}, InvalidRequest, "No such option: --modle"),
        ({"target": {"max-sessions": 0}}, InvalidRequest, "max-sessions"),
        ({"target": {"max-sessions": "many"}}, InvalidRequest, "max-sessions"),
        ({"targets": {}}, ValidationError, "targets"),
        ({"front": {"model": "large-v3"}}, InvalidRequest, "A front has no flag model"),
        ({"target": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
        ({"front": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
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
        ("targets", {}, {"Front"}),
        ("targets", {"target": {"metrics-port": 0}, "front": {"port": 0}}, set()),
        ("targets", {"target": {"metrics-port": 9464}}, {"Front", "Target"}),
        ("targets", {"target": {"port": 50052}}, {"Front", "Target"}),
        ("drafts", {}, {"Draft"}),
        ("drafts", {"draft": {"port": 0}}, set()),
        ("drafts", {"draft": {"port": 0, "metrics-port": 9464}}, {"Draft"}),
        ("gateway", {}, {"Gateway"}),
        ("gateway", {"gateway": {"port": 0, "metrics-port": 0}}, set()),
    ],
)
def test_where_a_port_is_fixed_a_node_has_one_replica(build, args, names):
    told = deployments_of(getattr(serve_app, build)(args))
    assert {name for name, deployment in told.items() if deployment.max_replicas_per_node == 1} == names


@pytest.mark.parametrize(
    ("build", "args", "drains"),
    [
        ("targets", {"target": {"drain-timeout": 60}}, {"Target": 60.0, "Front": 30.0}),
        ("drafts", {"draft": {"drain-timeout": 60}}, {"Draft": 60.0}),
        ("gateway", {"gateway": {"drain-timeout": 60}}, {"Gateway": 60.0}),
    ],
)
def test_nobody_is_killed_who_still_drains(build, args, drains):
    told = deployments_of(getattr(serve_app, build)(args))
    graces = {name: deployment.graceful_shutdown_timeout_s for name, deployment in told.items()}
    assert graces == {name: drain_s + serve_app.STOP_MARGIN_S for name, drain_s in drains.items()}


def application(**changes):
    told = {"name": "targets", "import_path": "deploy.serve_app:targets", "route_prefix": None} | changes
    return ServeDeploySchema.model_validate({"applications": [told]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": {"target": {"modle": "large-v3"}}}, "Application 'targets': No such option: --modle"),
        ({"args": {"targets": {}}}, "Arguments of 'targets': targets: "),
        ({"import_path": "deploy.serve_app:tragets"}, "there is no deploy.serve_app:tragets"),
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
        args = {"front": {flag: taken.getsockname()[1]}}
        with pytest.raises(PortTaken, match=f"127.0.0.1:{args['front'][flag]}"):
            check_ports(application(args=args))
    check_ports(application(args=args))


def test_applications_of_others_are_theirs_to_check():
    check(application(import_path="theirs.module:app"))


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


def test_a_file_is_checked_before_a_cluster_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "cluster", lambda _: pytest.fail("it was asked"))
    path = tmp_path / "wrong.yaml"
    wrong = {"name": "a", "import_path": "deploy.serve_app:targets", "args": {"target": {"modle": "x"}}}
    path.write_text(yaml.safe_dump({"applications": [wrong]}))
    with pytest.raises(InvalidRequest, match="No such option: --modle"):
        command.run(path, "auto")
