"""Applications' arguments become server flags and Ray deployment options."""

import pytest
from ray.serve.deployment import deployment_to_schema

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper_deploy import serve_app


@pytest.mark.parametrize(
    ("build", "args", "words"),
    [
        ("targets", {"targets": {}}, "'targets: {}' is not an argument: .* target or locator"),
        ("targets", {"target": 3}, "'target: 3' is not an argument"),
        ("targets", {"target": {"standby": True}}, "write num_standby"),
        ("targets", {"locator": {"model": "large-v3"}}, "A locator has no flag model"),
        ("targets", {"target": {"host": "0.0.0.0"}}, "encryption"),
        ("targets", {"locator": {"host": "0.0.0.0"}}, "encryption"),
        ("drafts", {"locator": {}}, "The locator of draft servers needs a port"),
        ("drafts", {"draft": {"port": "50051-50050"}}, "write a port, 0 for a free one, or a range"),
    ],
)
def test_invalid_arguments_are_refused(build, args, words):
    with pytest.raises((InvalidRequest, UnsafeBind), match=words):
        getattr(serve_app, build)(args)


def test_a_locator_shares_host_and_security_flags_with_its_replicas():
    open_to_all = {"insecure": True, "host": "0.0.0.0"}
    application = serve_app.drafts({"draft": open_to_all, "locator": {"port": 50050}})
    flags, _ = application._bound_deployment.init_args
    assert flags == open_to_all | {"port": 50050}


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
        ("gateway", {"gateway": {"drain-timeout": 60}}, {"Gateway": 60.0}),
    ],
)
def test_serve_kills_a_replica_only_after_its_drain(build, args, drains):
    schemas = deployments_of(getattr(serve_app, build)(args))
    timeouts = {name: schema.graceful_shutdown_timeout_s for name, schema in schemas.items()}
    assert timeouts == {name: drain_s + serve_app.STOP_MARGIN_S for name, drain_s in drains.items()}
