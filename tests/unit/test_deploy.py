"""Where sessions go, how many targets there are, and what stands in a configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from deploy import serve_app
from deploy.command import DEMO, read_schema
from deploy.routing import RecentPicks
from deploy.scaling import BySessions
from specwhisper.errors import InvalidRequest, UnsafeBind
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
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is no configuration of Ray Serve"):
        read_schema(wrong)
