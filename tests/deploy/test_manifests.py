"""Images, compose files and manifests agree with the servers and with each other."""

import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

import specwhisper_client.cli.main
from specwhisper import __version__
from specwhisper.rpc.addresses import split_address
from specwhisper.settings.command_line import app_of
from specwhisper_draft_server.config import DEFAULT_PORT as DRAFT_PORT
from specwhisper_gateway.access_log import LIVE_ROUTE
from specwhisper_gateway.config import DEFAULT_PORT as GATEWAY_PORT
from specwhisper_target_server.config import DEFAULT_PORT as TARGET_PORT
from specwhisper_wyoming.config import WyomingConfig
from tests.deploy.manifests import (
    COMPOSE,
    DEPLOY,
    INIT,
    PROGRAMS,
    ROOT,
    SECRETS,
    dockerfile,
    in_compose,
    in_images,
    in_kubernetes,
    of_kind,
    pod_of,
    ray_pods,
    read_compose,
    rendered,
    workloads,
)

OVERLAYS = ("cpu-demo", "gpu", "ray")
PORTS = {"target": TARGET_PORT, "draft": DRAFT_PORT, "gateway": GATEWAY_PORT}
MARGIN_S = 10
WYOMING = "compose.wyoming.yaml"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def servers():
    yield from in_images()
    yield from in_compose(*COMPOSE)
    for overlay in OVERLAYS:
        yield from in_kubernetes(overlay)


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program that pip has installed beside this Python."""
    command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_every_flag_exists_and_every_server_has_encryption_and_tokens(secrets):
    for server in servers():
        flags = server.flags
        assert flags["host"] == "0.0.0.0", server.where
        assert flags["port"] == PORTS[server.role], server.where
        assert flags.get("grpc_use_ssl") or flags.get("http_use_ssl"), server.where
        assert flags["tokens_file"] == Path(SECRETS + "tokens"), server.where
        assert not flags["insecure"], server.where
        assert server.secrets <= {path.name for path in (secrets / server.role).iterdir()}, server.where


def test_servers_are_configured_with_each_others_ports():
    for server in servers():
        for role, flag in (("target", "target"), ("draft", "server")):
            for address in server.flags.get(flag, "").split(",") if flag in server.flags else ():
                assert split_address(address)[1] == PORTS[role], server.where


def containers(overlay: str) -> dict[str, dict]:
    """Return the container of each role."""
    return {role: pod_of(workload)[1] for role, workload in workloads(overlay).items()}


def health_commands():
    for role in PROGRAMS:
        yield role, dockerfile()[role]["HEALTHCHECK"]
    for role, service in read_compose("compose.yaml")["services"].items():
        yield role, service["healthcheck"]["test"][1:]
    for overlay in OVERLAYS:
        for role, container in containers(overlay).items():
            for probe in PROBES:
                if "exec" in container[probe]:
                    yield role, container[probe]["exec"]["command"]


def test_health_checks_use_existing_flags_and_the_right_port():
    group = typer.main.get_command(specwhisper_client.cli.main.app)
    known = {name for option in group.params for name in option.opts}
    commands = list(health_commands())
    assert len(commands) > 2 * len(PROGRAMS)
    for role, (program, *words, command, server) in commands:
        assert (program, command) == ("specwhisper", "health")
        assert "health" in group.commands
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
        flag, _, address = server.partition("=")
        assert flag in group.commands["health"].params[0].opts
        assert split_address(address.removeprefix("https://")) == ("127.0.0.1", PORTS[role])


def test_a_gateways_probes_do_not_depend_on_its_draft_servers():
    for overlay in OVERLAYS:
        for probe in PROBES:
            found = containers(overlay)["gateway"][probe]["httpGet"]["path"]
            assert found == LIVE_ROUTE, (overlay, probe)


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


def test_no_server_is_killed_while_it_drains():
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


def test_pods_run_without_privileges_and_write_to_volumes_only():
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


def test_services_lead_to_open_ports():
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


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_network_policies_select_pods_by_labels_that_these_have(overlay):
    pods = []
    for workload in workloads(overlay).values():
        pods.append(workload["spec"]["template"]["metadata"]["labels"])
        assert workload["spec"]["selector"]["matchLabels"].items() <= pods[-1].items()
    for policy in of_kind(overlay, "NetworkPolicy").values():
        assert "app.kubernetes.io/part-of" not in str(policy["spec"]), "pods of other namespaces lack it"
        selected = policy["spec"]["podSelector"].get("matchLabels", {})
        assert "ray.io/is-ray-node" in selected or any(selected.items() <= labels.items() for labels in pods)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid_for_kubernetes(overlay):
    for manifest in rendered(overlay):
        if manifest["kind"] != "RayService":
            kubernetes_validate.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_finds_the_metrics_of_every_pod_and_nothing_else(overlay):
    example = yaml.safe_load((DEPLOY / "observability" / "prometheus.kubernetes.yml").read_text())
    scraped = list(containers(overlay).values())
    if overlay == "ray":
        scraped += [pod["spec"]["containers"][0] for pod in ray_pods()[1]]
    found = {}
    for job in example["scrape_configs"]:
        assert job["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["specwhisper"]}}]
        [rule] = job["relabel_configs"]
        assert rule["action"] == "keep"
        assert rule["source_labels"] == [
            f"__meta_kubernetes_pod_container_{it}" for it in ("name", "port_name")
        ]
        for container in scraped:
            for port in container["ports"]:
                if re.fullmatch(rule["regex"], f"{container['name']};{port['name']}"):
                    found[job["job_name"], container["name"]] = port["containerPort"]
    target = "ray-worker" if overlay == "ray" else "target"
    assert found == {
        ("specwhisper-target", target): 9464,
        ("specwhisper-draft", "draft"): 9465,
        ("specwhisper-gateway", "gateway"): PORTS["gateway"],
    }


def names_in_calls(text: str) -> list[dict[str, set[str]]]:
    """Return the names in each call of make-secrets that has some, by role."""
    calls = re.findall(r"make-secrets deploy/secrets ((?:[\w.-]+=\S+\s+|\\\n[# ]*)+)", text)
    found = []
    for call in calls:
        found.append({})
        for role, name in re.findall(r"(\w+)=([\w.-]+)", call):
            found[-1].setdefault(role, set()).add(name)
    return found


def test_certificates_in_kubernetes_have_the_names_of_targets_and_services():
    [draft] = [server for server in in_kubernetes("cpu-demo") if server.role == "draft"]
    names = {
        "target": {split_address(address)[0] for address in draft.flags["target"].split(",")},
        **{role: {f"{role}.specwhisper.svc"} for role in of_kind("cpu-demo", "Service") if role != "target"},
    }
    for file in ("docs/serving.md", "deploy/kubernetes/base/kustomization.yaml"):
        assert names in names_in_calls((ROOT / file).read_text()), file
    [renewed] = names_in_calls((ROOT / "docs" / "runbook.md").read_text())
    assert renewed == {"target": names["target"]}


def test_each_draft_server_has_an_address_of_its_own():
    for overlay in OVERLAYS:
        draft = of_kind(overlay, "Service")["draft"]["spec"]
        assert draft["clusterIP"] == "None"  # headless: the name has the pods' addresses
        [port] = draft["ports"]
        _, container = pod_of(workloads(overlay)["draft"])
        assert port["port"] in {each["containerPort"] for each in container["ports"]}, (
            "a headless service translates no port"
        )


def test_compose_files_are_valid():
    files = [DEPLOY / name for name in (*COMPOSE, WYOMING)]
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *files)
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


def test_compose_has_room_for_uploads_which_exist_twice_for_a_moment():
    [tmp] = read_compose("compose.yaml")["services"]["gateway"]["tmpfs"]
    size_gb = int(re.fullmatch(r"/tmp:size=(\d+)g", tmp)[1])
    [flags] = [server.flags for server in in_compose("compose.yaml") if server.role == "gateway"]
    assert size_gb << 30 >= 2 * flags["max_upload_bytes"] * flags["max_sessions"]


def test_the_dockerfile_is_clean_and_its_stages_are_what_others_build():
    checked = tool("hadolint", "--no-color", "deploy/Dockerfile")
    assert checked.returncode == 0, checked.stdout
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
        tags |= {each["image"].rpartition(":")[2] for each in containers(overlay).values()}
    tags |= {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in ray_pods()[1]}
    assert tags == {__version__}


def wyomings_flags(service):
    command = typer.main.get_command(app_of(WyomingConfig, lambda **_: None))
    return command.make_context("specwhisper-wyoming", list(service["command"])).params


def test_wyomings_flags_exist_and_lead_to_the_draft_server():
    [service] = read_compose(WYOMING)["services"].values()
    base = read_compose("compose.yaml")["services"]
    flags = wyomings_flags(service)
    assert service["entrypoint"] == [*INIT, "specwhisper-wyoming"]
    assert flags["uri"] == "tcp://0.0.0.0:10300"
    gateway = "\n".join(base["gateway"]["command"])
    for flag in ("server", "server-use-ssl", "server-root-cert", "server-token-file"):
        [line] = [word for word in service["command"] if word.partition("=")[0] == f"--{flag}"]
        assert line in gateway
    assert seconds(service["stop_grace_period"]) > flags["drain_timeout"]


def test_wyoming_sees_only_the_secrets_that_it_reads_and_is_as_closed_as_the_others():
    [service] = read_compose(WYOMING)["services"].values()
    base = read_compose("compose.yaml")["services"]
    read = set(re.findall(rf"{SECRETS}([\w.-]+)", " ".join(service["command"])))
    assert read == {"roots.pem", "draft-token"}
    assert set(service["volumes"]) == {f"./secrets/gateway/{name}:{SECRETS}{name}:ro" for name in read}
    shared = "build depends_on restart read_only cap_drop security_opt stop_grace_period"
    assert [service[key] for key in shared.split()] == [base["gateway"][key] for key in shared.split()]
    assert service["ports"] == ["127.0.0.1:10300:10300"]
    assert service["image"] == base["gateway"]["image"] == f"specwhisper-gateway:{__version__}"


def test_the_pages_settings_are_those_of_the_file():
    page = (DEPLOY.parent / "docs" / "integrations.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert wyomings_flags(yaml.safe_load(block)["services"]["specwhisper"])["insecure"]
