"""Applications' arguments become server flags and Ray deployment options."""

import pytest
from ray.serve.deployment import deployment_to_schema

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper_deploy import serve_app


@pytest.mark.parametrize(
    ("args", "kind", "words"),
    [
        ({"target": {"modle": "large-v3"}}, InvalidRequest, "No such option: --modle"),
        ({"targets": {}}, InvalidRequest, "'targets: {}' is not an argument: .* target or locator"),
        ({"target": 3}, InvalidRequest, "'target: 3' is not an argument"),
        ({"target": {"standby": True}}, InvalidRequest, "write num_standby"),
        ({"locator": {"model": "large-v3"}}, InvalidRequest, "A locator has no flag model"),
        ({"target": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
        ({"locator": {"host": "0.0.0.0"}}, UnsafeBind, "encryption"),
        ({"target": {"grpc-use-ssl": True}}, InvalidRequest, "--grpc-server-cert"),
    ],
)
def test_invalid_arguments_of_targets_are_refused(args, kind, words):
    with pytest.raises(kind, match=words):
        serve_app.targets(args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"locator": {}}, "The locator of draft servers needs a port"),
        ({"locator": {"port": 1, "draft-model": "tiny"}}, "A locator has no flag draft-model.* draft server"),
        ({"draft": {"port": "50051-50050"}}, "write a port, 0 for a free one, or a range"),
    ],
)
def test_invalid_arguments_of_draft_servers_are_refused(args, words):
    with pytest.raises(InvalidRequest, match=words):
        serve_app.drafts(args)


def test_a_locator_shares_host_and_security_flags_with_its_replicas():
    application = serve_app.drafts(
        {"draft": {"insecure": True, "host": "0.0.0.0"}, "locator": {"port": 50050}}
    )
    flags, _ = application._bound_deployment.init_args
    assert flags == {"insecure": True, "host": "0.0.0.0", "port": 50050}


def deployments_of(application):
    """Return the schema of each deployment, by name."""
    deployment = application._bound_deployment
    schemas = {deployment.name: deployment_to_schema(deployment)}
    for argument in deployment.init_args:
        if isinstance(argument, serve_app.Application):
            schemas |= deployments_of(argument)
    return schemas


@pytest.mark.parametrize(
    ("build", "args", "numbers"),
    [
        ("targets", {}, {"Locator": 1}),
        ("targets", {"target": {"metrics-port": 0}, "locator": {"port": 0}}, {}),
        ("targets", {"target": {"metrics-port": 9464}}, {"Locator": 1, "Target": 1}),
        ("targets", {"target": {"port": "50053-50055"}}, {"Locator": 1, "Target": 3}),
        ("drafts", {}, {"Draft": 1}),
        ("drafts", {"draft": {"port": 0, "metrics-port": 9464}}, {"Draft": 1}),
        ("drafts", {"draft": {"port": 0}, "locator": {"port": 50050}}, {"Locator": 1}),
        ("drafts", {"draft": {"port": "1-3", "metrics-port": 0}, "locator": {"port": 0}}, {"Draft": 3}),
        ("gateway", {}, {"Gateway": 1}),
        ("gateway", {"gateway": {"port": 0, "metrics-port": 0}}, {}),
        ("gateway", {"gateway": {"port": "8000-8002", "metrics-port": "9000-9002"}}, {"Gateway": 3}),
    ],
)
def test_a_node_has_as_many_replicas_as_there_are_ports_to_take(build, args, numbers):
    schemas = deployments_of(getattr(serve_app, build)(args))
    found = {name: schema.max_replicas_per_node for name, schema in schemas.items()}
    assert {name: number for name, number in found.items() if isinstance(number, int)} == numbers


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
def test_serve_kills_a_replica_only_after_its_drain(build, args, drains):
    schemas = deployments_of(getattr(serve_app, build)(args))
    timeouts = {name: schema.graceful_shutdown_timeout_s for name, schema in schemas.items()}
    assert timeouts == {name: drain_s + serve_app.STOP_MARGIN_S for name, drain_s in drains.items()}
