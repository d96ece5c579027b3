"""The RayService: Ray accepts its Serve configuration, and its pods fit that configuration."""

import warnings
from typing import Any

import kubernetes_validate
import yaml
from ray.serve.schema import ServeDeploySchema

from specwhisper_target_server.config import DEFAULT_PORT as TARGET_PORT
from tests.deploy.manifests import PROGRAMS, ROOT, Started, in_kubernetes, of_kind, ray_pods
from tests.deploy.test_secrets import names_in


def serve_config() -> dict[str, Any]:
    """Return the Serve configuration that `kubectl apply --kustomize` deploys."""
    [service] = of_kind("ray", "RayService").values()
    return yaml.safe_load(service["spec"]["serveConfigV2"])


def application() -> dict[str, Any]:
    """Return its only application."""
    [application] = serve_config()["applications"]
    return application


def test_ray_accepts_the_configuration():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ServeDeploySchema.model_validate(serve_config())


def test_pods_have_the_ports_secrets_and_number_that_the_configuration_needs(secrets):
    flags = application()["args"]["target"]
    words = [f"--{name}={value}" for name, value in flags.items() if not isinstance(value, bool)]
    words += [f"--{name}" for name, value in flags.items() if value is True]
    target = Started("serve", "target", PROGRAMS["target"], tuple(words))
    assert target.secrets <= {path.name for path in (secrets / "target").iterdir()}
    cluster, _ = ray_pods()
    [workers] = cluster["workerGroupSpecs"]
    [container] = workers["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "grpc": target.flags["port"],
        "metrics": target.flags["metrics_port"],
    }
    [egress] = of_kind("ray", "NetworkPolicy")["draft-to-ray"]["spec"]["egress"]
    assert egress["ports"] == [{"port": TARGET_PORT, "protocol": "TCP"}]
    assert application()["args"]["locator"]["port"] == target.flags["port"] == TARGET_PORT
    wanted = {d["name"]: d for d in application()["deployments"]}["Target"]["autoscaling_config"]
    assert workers["minReplicas"] >= wanted["min_replicas"]
    assert workers["maxReplicas"] >= 2 * wanted["max_replicas"]  # both versions during an update


def test_pods_are_valid_for_kubernetes_and_run_the_locked_ray():
    cluster, pods = ray_pods()
    for pod in pods:
        kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **pod}, "1.33", strict=True)
        # KubeRay starts a shell instead of the image's init; the pod's own init takes over its work.
        assert pod["spec"]["shareProcessNamespace"]
    locked = (ROOT / "requirements" / "ray.txt").read_text()
    assert f"\nray=={cluster['rayVersion']} " in locked


def test_draft_servers_use_the_locator_and_a_name_in_its_certificate(secrets):
    [draft] = [server for server in in_kubernetes("ray") if server.role == "draft"]
    [service] = of_kind("ray", "RayService")
    cluster, _ = ray_pods()
    [head] = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports["serve"] == 8000  # KubeRay refuses a service whose head names ports, but not this one
    assert draft.flags["target"] == f"{service}-head-svc:{ports['locator']}"
    assert draft.flags["target_server_name"] in names_in(secrets / "target" / "server.pem")
