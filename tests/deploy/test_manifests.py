"""What deploy/ starts exists and agrees: flags, ports, secrets, names, times."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

import specwhisper_client.cli.main
from scripts.rayservice import WRITTEN, changed
from scripts.rayservice import manifest as written
from specwhisper import __version__
from specwhisper.cli.command_lines import config_from
from specwhisper.errors import UnsafeBind
from specwhisper.rpc.addresses import split_address
from specwhisper_draft_server.config import DEFAULT_PORT as DRAFT_PORT
from specwhisper_gateway.access_log import LIVE_ROUTE
from specwhisper_gateway.config import DEFAULT_PORT as GATEWAY_PORT
from specwhisper_target_server.command import read_config as read_target
from specwhisper_target_server.config import DEFAULT_PORT as TARGET_PORT
from tests.deploy.manifests import (
    COMPOSE,
    DEPLOY,
    INIT,
    KUBERNETES,
    PROGRAMS,
    ROOT,
    SECRETS,
    Started,
    dockerfile,
    in_compose,
    in_images,
    in_kubernetes,
    of_kind,
    pod_of,
    read_compose,
    rendered,
    workloads,
)

OVERLAYS = ("cpu-demo", "gpu", "ray")
PORTS = {"target": TARGET_PORT, "draft": DRAFT_PORT, "gateway": GATEWAY_PORT}
MARGIN_S = 10
USAGE_ERROR = typer.BadParameter.__mro__[1]  # click's, or of the copy of it that newer typers bring
SERVE = DEPLOY / "specwhisper_deploy" / "serve.yaml"


def servers():
    yield from in_images()
    yield from in_compose(*COMPOSE)
    for overlay in OVERLAYS:
        yield from in_kubernetes(overlay)


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program that pip has installed beside this Python."""
    command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_every_flag_exists_and_every_server_is_encrypted_and_asks_who_calls(secrets):
    for server in servers():
        flags = server.flags
        assert flags["host"] == "0.0.0.0", server.where
        assert flags["port"] == PORTS[server.role], server.where
        assert flags.get("grpc_use_ssl") or flags.get("http_use_ssl"), server.where
        assert flags["tokens_file"] == Path(SECRETS + "tokens"), server.where
        assert not flags["insecure"], server.where
        assert server.secrets <= {path.name for path in (secrets / server.role).iterdir()}, server.where


@pytest.mark.parametrize("arguments", [("--no-such-flag",), ("--port=many",), ("stray",)])
def test_a_wrong_flag_would_be_found(arguments):
    with pytest.raises(USAGE_ERROR):
        _ = Started("here", "target", PROGRAMS["target"], arguments).flags


def test_servers_are_pointed_to_the_ports_of_each_other():
    for server in servers():
        for role, flag in (("target", "target"), ("draft", "server")):
            for address in server.flags.get(flag, "").split(",") if flag in server.flags else ():
                assert split_address(address)[1] == PORTS[role], server.where


def health_commands():
    for role in PROGRAMS:
        yield role, dockerfile()[role]["HEALTHCHECK"]
    for role, service in read_compose("compose.yaml")["services"].items():
        yield role, service["healthcheck"]["test"][1:]
    for overlay in OVERLAYS:
        for role, workload in workloads(overlay).items():
            _, container = pod_of(workload)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if "exec" in container[probe]:
                    yield role, container[probe]["exec"]["command"]


def test_health_is_asked_with_flags_that_exist_and_at_the_right_port():
    group = typer.main.get_command(specwhisper_client.cli.main.app)
    known = {name for option in group.params for name in option.opts}
    commands = list(health_commands())
    assert len(commands) > 2 * len(PROGRAMS)
    for role, (program, *words, command, address) in commands:
        assert (program, command) == ("specwhisper", "health")
        assert "health" in group.commands
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
        assert split_address(address.removeprefix("https://")) == ("127.0.0.1", PORTS[role])


def test_a_gateway_is_not_restarted_for_who_is_away_behind_it():
    for overlay in OVERLAYS:
        _, container = pod_of(workloads(overlay)["gateway"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] == LIVE_ROUTE, (overlay, probe)


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


def test_nobody_is_killed_while_draining():
    base = read_compose("compose.yaml")["services"]
    for server in in_compose(*COMPOSE):
        grace_s = seconds(base[server.role]["stop_grace_period"])
        assert grace_s >= server.flags["drain_timeout"] + MARGIN_S, server.where
    for overlay in OVERLAYS:
        for server in in_kubernetes(overlay):
            pod, container = pod_of(workloads(overlay)[server.role])
            pre_stop_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            grace_s = pod["terminationGracePeriodSeconds"]
            assert grace_s >= pre_stop_s + server.flags["drain_timeout"] + MARGIN_S, server.where


def test_pods_run_as_nobody_and_write_to_volumes_only():
    for overlay in OVERLAYS:
        for role, workload in workloads(overlay).items():
            pod, container = pod_of(workload)
            assert pod["securityContext"]["runAsNonRoot"], role
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, role
            assert container["securityContext"]["readOnlyRootFilesystem"], role
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, role
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            claims = workload["spec"].get("volumeClaimTemplates", [])
            names = volumes.keys() | {claim["metadata"]["name"] for claim in claims}
            assert {mount["name"] for mount in container["volumeMounts"]} == names, role
            assert volumes["secrets"]["secret"]["secretName"] == f"specwhisper-{role}"
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, role
            assert "memory" in container["resources"]["limits"], role


def test_services_lead_to_ports_that_are_open():
    for overlay in OVERLAYS:
        for name, service in of_kind(overlay, "Service").items():
            workload = workloads(overlay)[name]
            _, container = pod_of(workload)
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert [ports[port["targetPort"]] for port in service["spec"]["ports"]] == [PORTS[name]]
            [server] = [server for server in in_kubernetes(overlay) if server.role == name]
            assert ports.get("metrics") == server.flags["metrics_port"]


@pytest.mark.parametrize("overlay", ["cpu-demo", "gpu"])
def test_draft_servers_know_every_target(overlay):
    [draft] = [server for server in in_kubernetes(overlay) if server.role == "draft"]
    target = workloads(overlay)["target"]["spec"]
    names = [f"target-{i}.{target['serviceName']}:{TARGET_PORT}" for i in range(target["replicas"])]
    assert draft.flags["target"].split(",") == names


@pytest.mark.parametrize(
    ("overlay", "folders"), [("cpu-demo", ["base"]), ("gpu", ["base"]), ("ray", ["base", "ray"])]
)
def test_network_policies_select_by_the_labels_that_are_written(overlay, folders):
    texts = [(KUBERNETES / folder / "network-policies.yaml").read_text() for folder in folders]
    written = {m["metadata"]["name"]: m["spec"] for text in texts for m in yaml.safe_load_all(text)}
    if overlay == "ray":
        del written["target"]  # there are no such pods
    assert {name: m["spec"] for name, m in of_kind(overlay, "NetworkPolicy").items()} == written
    for workload in workloads(overlay).values():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "specwhisper"
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_of_kubernetes_schemas(overlay):
    for manifest in rendered(overlay):
        if manifest["kind"] != "RayService":
            kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_draft_servers_know_rays_locator_and_the_name_in_its_certificate(secrets):
    [draft] = [server for server in in_kubernetes("ray") if server.role == "draft"]
    [service] = of_kind("ray", "RayService")
    cluster, _ = ray_pods()
    [head] = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports["serve"] == 8000  # KubeRay refuses a service whose head names ports, and not this one
    assert draft.flags["target"] == f"{service}-head-svc:{ports['locator']}"
    shown = subprocess.run(
        ["openssl", "x509", "-in", secrets / "target" / "server.pem", "-noout", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"DNS:{draft.flags['target_server_name']}," in shown.stdout


def ray_pods():
    [service] = of_kind("ray", "RayService").values()
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return cluster, [group["template"] for group in groups]


def test_rays_pods_are_of_kubernetes_schemas_and_its_version_is_the_locked_one():
    cluster, pods = ray_pods()
    for pod in pods:
        kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **pod}, "1.33", strict=True)
        # KubeRay starts a shell in place of the image's init: the pod's own one takes its work.
        assert pod["spec"]["shareProcessNamespace"]
    locked = (ROOT / "requirements" / "ray.txt").read_text()
    assert f"\nray=={cluster['rayVersion']} " in locked


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_finds_the_metrics_of_every_pod_and_nothing_else(overlay):
    example = yaml.safe_load((DEPLOY / "observability" / "prometheus.kubernetes.yml").read_text())
    containers = [pod_of(workload)[1] for workload in workloads(overlay).values()]
    if overlay == "ray":
        containers += [pod["spec"]["containers"][0] for pod in ray_pods()[1]]
    found = {}
    for job in example["scrape_configs"]:
        assert job["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["specwhisper"]}}]
        [rule] = job["relabel_configs"]
        assert rule["action"] == "keep"
        assert rule["source_labels"] == [
            f"__meta_kubernetes_pod_container_{it}" for it in ("name", "port_name")
        ]
        for container in containers:
            for port in container["ports"]:
                if re.fullmatch(rule["regex"], f"{container['name']};{port['name']}"):
                    found[job["job_name"], container["name"]] = port["containerPort"]
    target = "ray-worker" if overlay == "ray" else "target"
    assert found == {
        ("specwhisper-target", target): 9464,
        ("specwhisper-draft", "draft"): 9465,
        ("specwhisper-gateway", "gateway"): PORTS["gateway"],
    }


def names_told(text: str) -> list[dict[str, set[str]]]:
    """Give the names in every call of make-secrets that has some, by role."""
    calls = re.findall(r"make-secrets deploy/secrets ((?:[\w.-]+=\S+\s+|\\\n[# ]*)+)", text)
    told = []
    for call in calls:
        told.append({})
        for role, name in re.findall(r"(\w+)=([\w.-]+)", call):
            told[-1].setdefault(role, set()).add(name)
    return told


def test_certificates_in_kubernetes_have_the_names_of_targets_and_services():
    [draft] = [server for server in in_kubernetes("cpu-demo") if server.role == "draft"]
    names = {
        "target": {split_address(address)[0] for address in draft.flags["target"].split(",")},
        **{role: {f"{role}.specwhisper.svc"} for role in of_kind("cpu-demo", "Service") if role != "target"},
    }
    for file in ("docs/deployment.md", "deploy/kubernetes/base/kustomization.yaml"):
        assert names in names_told((ROOT / file).read_text()), file
    [renewed] = names_told((ROOT / "docs" / "runbook.md").read_text())
    assert renewed == {"target": names["target"]}


def test_compose_is_called_with_its_file_and_where_torch_is():
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *DEPLOY.glob("compose*.yaml")]
    found = set()
    for path in files:
        text = path.read_text()
        for call in re.findall(r"docker compose [^`\n]*--build[^`\n]*", text):
            found.add(path.name)
            assert "--file deploy/compose.yaml " in call, path
            assert "export TORCH_CPU=https://download.pytorch.org/whl/cpu/torch/\n" in text, path
    assert found == {"README.md", "deployment.md", "runbook.md", "compose.yaml", "compose.gpu.yaml"}


def test_workflows_are_of_githubs_schema():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    assert checked.returncode == 0, checked.stdout


def test_a_wrong_manifest_would_be_found():
    [service, *_] = of_kind("gpu", "Service").values()
    for wrong in ({"port": "many"}, {"port": 1, "prot": "TCP"}):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(service | {"spec": {"ports": [wrong]}}, "1.33", strict=True)


def served() -> dict[str, Any]:
    """Give Serve's configuration, as `kubectl apply --kustomize` deploys it."""
    [service] = of_kind("ray", "RayService").values()
    return yaml.safe_load(service["spec"]["serveConfigV2"])


def test_what_is_applied_has_rays_applications():
    assert WRITTEN.read_text() == written(), "run scripts/rayservice.py"
    [application] = served()["applications"]
    assert (application["name"], application["import_path"]) == (
        "targets",
        "specwhisper_deploy.serve_app:targets",
    )


def test_draft_servers_have_an_address_each_to_spread_sessions_over():
    for overlay in OVERLAYS:
        draft = of_kind(overlay, "Service")["draft"]["spec"]
        assert draft["clusterIP"] == "None"  # headless: the name has the pods' addresses
        [port] = draft["ports"]
        _, container = pod_of(workloads(overlay)["draft"])
        assert port["port"] in {each["containerPort"] for each in container["ports"]}, "nothing translates it"


def test_every_image_is_built_by_ci():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    built = jobs["images"]["strategy"]["matrix"]["image"]
    assert set(built) == {*PROGRAMS, "ray"} <= dockerfile().keys()
    [build] = [step["run"] for step in jobs["images"]["steps"] if "docker build" in step.get("run", "")]
    assert '--target "$IMAGE"' in build
    assert "TORCH_CPU=https://download.pytorch.org/whl/cpu/torch/" in build


@pytest.mark.skipif(not SERVE.exists(), reason="deploy/specwhisper_deploy/serve.yaml is not there")
def test_targets_in_a_cluster_may_be_reached_as_they_are_told(secrets):
    [application] = served()["applications"]
    flags = application["args"]["target"] | {"device": "cpu", "dtype": "float32"}
    here = {
        k: v.replace(SECRETS, f"{secrets}/target/") if isinstance(v, str) else v for k, v in flags.items()
    }
    serving = config_from(read_target, here).serving
    assert (serving.host, serving.metrics_host, serving.insecure) == ("0.0.0.0", "0.0.0.0", False)
    with pytest.raises(UnsafeBind):
        config_from(read_target, here | {"tokens-file": None})


@pytest.mark.skipif(not SERVE.exists(), reason="deploy/specwhisper_deploy/serve.yaml is not there")
def test_ray_gets_the_configuration_of_one_machine_with_a_clusters_changes():
    schema = pytest.importorskip("ray.serve.schema")
    config = served()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema.ServeDeploySchema.model_validate(config)
    one_machine = {app["name"]: app for app in yaml.safe_load(SERVE.read_text())["applications"]}
    cluster, _ = ray_pods()
    assert config["applications"]
    for application in config["applications"]:
        original = one_machine[application["name"]]
        assert application["import_path"] == original["import_path"]
        assert {d["name"] for d in original["deployments"]} <= {d["name"] for d in application["deployments"]}
        flags = application["args"]["target"]
        words = [f"--{name}={value}" for name, value in flags.items() if not isinstance(value, bool)]
        words += [f"--{name}" for name, value in flags.items() if value is True]
        target = Started("serve", "target", PROGRAMS["target"], tuple(words))
        assert target.flags["grpc_use_ssl"]
        [workers] = cluster["workerGroupSpecs"]
        [container] = workers["template"]["spec"]["containers"]
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
            "grpc": target.flags["port"],
            "metrics": target.flags["metrics_port"],
        }
        draft_to_ray = of_kind("ray", "NetworkPolicy")["draft-to-ray"]["spec"]
        [egress] = draft_to_ray["egress"]
        assert egress["ports"] == [{"port": TARGET_PORT, "protocol": "TCP"}]
        assert application["args"]["locator"]["port"] == target.flags["port"] == TARGET_PORT
        wanted = {d["name"]: d for d in application["deployments"]}["Target"]["autoscaling_config"]
        assert workers["minReplicas"] >= wanted["min_replicas"]
        assert workers["maxReplicas"] >= 2 * wanted["max_replicas"]  # both versions during an update


def test_changes_go_by_name_and_null_leaves_out():
    old = {"a": 1, "b": None, "applications": [{"name": "x", "p": {"q": 1, "r": 2}}, {"name": "y"}]}
    new = {"a": 2, "applications": [{"name": "x", "p": {"q": None, "s": [3]}, "d": [{"name": "z"}]}]}
    merged = {"name": "x", "p": {"r": 2, "s": [3]}, "d": [{"name": "z"}]}
    assert changed(old, new) == {"a": 2, "b": None, "applications": [merged]}


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_are_of_its_schema(name):
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name)
    assert checked.returncode == 0, checked.stdout


def test_compose_mounts_each_roles_own_secrets_and_waits_for_health():
    services = read_compose("compose.yaml")["services"]
    assert services.keys() == PROGRAMS.keys()
    for role, service in services.items():
        assert f"./secrets/{role}:{SECRETS.rstrip('/')}:ro" in service["volumes"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
    order = {role: list(service.get("depends_on", {})) for role, service in services.items()}
    assert order == {"target": [], "draft": ["target"], "gateway": ["draft"]}
    for service in services.values():
        for condition in service.get("depends_on", {}).values():
            assert condition == {"condition": "service_healthy"}
    assert services["target"]["entrypoint"] == [*INIT, PROGRAMS["target"]]  # its image is the draft server's
    assert not any(service.get("init") for service in services.values()), "the images have one"


def test_compose_has_room_for_uploads_which_are_there_twice_for_a_moment():
    [tmp] = read_compose("compose.yaml")["services"]["gateway"]["tmpfs"]
    size_gb = int(re.fullmatch(r"/tmp:size=(\d+)g", tmp)[1])
    [flags] = [server.flags for server in in_compose("compose.yaml") if server.role == "gateway"]
    assert size_gb << 30 >= 2 * flags["max_upload_bytes"] * flags["max_sessions"]


def test_the_dockerfile_is_clean_and_its_stages_are_what_others_build(tmp_path):
    checked = tool("hadolint", "--no-color", "deploy/Dockerfile")
    assert checked.returncode == 0, checked.stdout
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd /tmp && pip install torch\n")
    assert tool("hadolint", bad).returncode != 0
    for role, program in PROGRAMS.items():
        stage = dockerfile()[role]
        assert stage["ENTRYPOINT"] == [*INIT, program]
        assert stage["USER"] == "10001:10001"
        assert stage["STOPSIGNAL"] == "SIGTERM"
        assert stage["EXPOSE"] == str(PORTS[role])
    assert dockerfile()["ray"]["ENTRYPOINT"] == INIT
    built = [
        service.get("build", {}) for name in COMPOSE for service in read_compose(name)["services"].values()
    ]
    assert {build["target"] for build in built if build} == {"draft", "gateway", "target"}


def test_images_are_tagged_with_this_version():
    services = read_compose("compose.yaml")["services"].values()
    tags = {service["image"].rpartition(":")[2] for service in services}
    for overlay in OVERLAYS:
        tags |= {pod_of(w)[1]["image"].rpartition(":")[2] for w in workloads(overlay).values()}
    tags |= {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in ray_pods()[1]}
    assert tags == {__version__}
