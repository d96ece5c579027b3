"""Errors in a configuration file are reported before Ray starts."""

import socket

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from specwhisper.errors import InvalidRequest, PortTaken, UnsafeBind
from specwhisper_deploy import serve_app
from specwhisper_deploy.command import DEMO, check_flags, check_hosts, check_ports, read_schema

NODES = ("192.0.2.1", "192.0.2.2")


def application(**changes):
    values = {
        "name": "targets",
        "import_path": "specwhisper_deploy.serve_app:targets",
        "route_prefix": None,
    } | changes
    return ServeDeploySchema.model_validate({"applications": [values]})


def test_the_bundled_file_is_valid_for_ray_and_for_our_servers():
    schema = read_schema(DEMO)
    assert schema == ServeDeploySchema.model_validate(yaml.safe_load(DEMO.read_text()))
    for each in schema.applications:
        module, _, builder = each.import_path.partition(":")
        assert module == "specwhisper_deploy.serve_app"
        getattr(serve_app, builder)(each.args)
        names = {deployment.name for deployment in each.deployments}
        assert names <= {"Target", "Locator", "Draft", "Gateway"}


def test_an_unreadable_file_is_named_with_the_reason(tmp_path):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_schema(tmp_path / "missing.yaml")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("applications: 3")
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is not a configuration .* applications: \w+"):
        read_schema(wrong)
    wrong.write_text("")
    with pytest.raises(InvalidRequest, match="Serve: the file: "):
        read_schema(wrong)
    wrong.write_text("applications: [")
    with pytest.raises(InvalidRequest, match=r"wrong.yaml is not valid YAML: [^\n]+wrong.yaml[^\n]+$"):
        read_schema(wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": {"target": {"modle": "large-v3"}}}, "Application 'targets': No such option: --modle"),
        (
            {"import_path": "specwhisper_deploy.serve_app:tragets"},
            "there is no specwhisper_deploy.serve_app:tragets",
        ),
    ],
)
def test_a_wrong_application_is_reported_on_one_line(changes, words):
    with pytest.raises(InvalidRequest, match=words) as refused:
        check_flags(application(**changes))
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
        check_flags(application(args={"target": flags}))
    check_flags(application(args={"target": flags}), runs_here=False)
    with pytest.raises(InvalidRequest, match="No such option: --modle"):
        check_flags(application(args={"target": flags | {"modle": "large-v3"}}), runs_here=False)


def test_a_file_on_this_machine_is_checked_even_if_the_cluster_is_elsewhere(tmp_path):
    (tmp_path / "tokens").write_text("anna short\n")
    with pytest.raises(InvalidRequest, match="a token has 16"):
        check_flags(application(args={"target": {"tokens-file": str(tmp_path / "tokens")}}), runs_here=False)


@pytest.mark.parametrize("flag", ["port", "metrics-port"])
def test_a_port_is_refused_if_it_is_taken_and_a_range_if_all_of_it_is(flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_ports(application(args={"locator": {flag: f"{port - 20}-{port}"}}))
        for ports in (port, f"{port}-{port}"):
            with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
                check_ports(application(args={"locator": {flag: ports}}))
    check_ports(application(args={"locator": {flag: port}}))


def test_applications_of_other_packages_are_not_checked():
    other = application(import_path="theirs.module:app")
    check_flags(other)
    check_hosts(other, NODES)


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        ({}, UnsafeBind, "2 machines, .* needs encryption and tokens"),
        ({"host": "127.0.0.1"}, InvalidRequest, "The host is 127.0.0.1, and the cluster has 2 machines"),
    ],
)
def test_a_host_that_other_nodes_cannot_reach_is_refused(flags, kind, words):
    with pytest.raises(kind, match=f"Application 'targets': .*{words}"):
        check_hosts(application(args={"target": flags}), NODES)
    check_hosts(application(args={"target": flags}), NODES[:1])


@pytest.mark.parametrize("flags", [{"insecure": True}, {"tokens-file": "/nowhere"}])
def test_a_host_that_other_nodes_can_reach_is_accepted(flags):
    check_hosts(application(args={"target": flags}), NODES)
