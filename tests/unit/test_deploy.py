"""Where sessions go, how many targets there are, and what stands in a configuration file."""

from __future__ import annotations

import threading
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
from deploy.command import DEMO, check, check_reachable, cluster, last_line, read_schema
from deploy.routing import RecentPicks
from deploy.scaling import BySessions
from specwhisper.errors import InvalidRequest, TargetUnavailable, UnsafeBind
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
    wrong.write_text("applications: [")
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is no YAML: [^\n]+$"):
        read_schema(wrong)


def alone_on_a_node(application):
    """Names of the deployments of which a node may have one replica only."""
    deployment = application._bound_deployment
    others = [each for each in deployment.init_args if isinstance(each, serve_app.Application)]
    own = {deployment.name} if deployment_to_schema(deployment).max_replicas_per_node == 1 else set()
    return own.union(*map(alone_on_a_node, others))


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
    assert alone_on_a_node(getattr(serve_app, build)(args)) == names


def application(**changes):
    told = {"name": "targets", "import_path": "deploy.serve_app:targets", "route_prefix": None} | changes
    return ServeDeploySchema.model_validate({"applications": [told]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": {"target": {"modle": "large-v3"}}}, "No such option: --modle"),
        ({"args": {"targets": {}}}, "Arguments of 'targets': targets: "),
        ({"import_path": "deploy.serve_app:tragets"}, "there is no deploy.serve_app:tragets"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_before_ray_starts(changes, words):
    with pytest.raises(InvalidRequest, match=words) as refused:
        check(application(**changes))
    assert "\n" not in str(refused.value)


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

    def __init__(self, **looks: float) -> None:
        self._looks = looks
        self.deleted: list[str] = []
        self.is_shut_down = False

    def delete(self, name: str, *, _blocking: bool) -> None:
        self.deleted.append(name)

    def status(self) -> SimpleNamespace:
        asked = self.deleted[-1]
        self._looks[asked] -= 1
        return SimpleNamespace(applications={asked} if self._looks[asked] >= 0 else set())

    def shutdown(self) -> None:
        self.is_shut_down = True


BOTH = ServeDeploySchema.model_validate(
    {"applications": [{"name": name, "import_path": f"a:{name}", "route_prefix": None} for name in "ab"]}
)


@pytest.mark.parametrize("is_all", [False, True])
def test_applications_end_one_after_the_other(monkeypatch, is_all):
    serve = Ending(a=2, b=3)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 60.0)
    console = Console(file=StringIO())
    command.end(BOTH, threading.Event(), console, is_all=is_all)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], is_all)
    assert console.file.getvalue() == ""


def test_an_application_that_does_not_end_is_told_of_and_left(monkeypatch):
    serve = Ending(a=0, b=inf)
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 0.0)
    monkeypatch.setattr(command, "END_MARGIN_S", 0.01)
    console = Console(file=StringIO(), width=200)
    command.end(BOTH, threading.Event(), console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], True)
    assert "Application 'b' has not ended within 0.01 s" in console.file.getvalue()
    assert "'a'" not in console.file.getvalue()


def test_who_is_in_a_hurry_waits_for_nobody(monkeypatch):
    serve, hurried = Ending(a=inf, b=inf), threading.Event()
    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "longest_grace_s", lambda _: 3600.0)
    console = Console(file=StringIO())
    hurried.set()
    command.end(BOTH, hurried, console, is_all=True)
    assert (serve.deleted, serve.is_shut_down) == (["b", "a"], False)
    assert console.file.getvalue() == ""
