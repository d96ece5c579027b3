"""Readers of deploy/: the servers that its files start, with their flags, files and ports."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from specwhisper.settings.command_line import app_of
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = ("compose.yaml", "compose.gpu.yaml")
SECRETS = "/run/secrets/specwhisper/"
INIT = ["tini", "--"]  # process 1 of every container
SETTINGS = {
    "specwhisper-target-server": TargetConfig,
    "specwhisper-draft-server": DraftConfig,
    "specwhisper-gateway": GatewayConfig,
}
PROGRAMS = {
    "target": "specwhisper-target-server",
    "draft": "specwhisper-draft-server",
    "gateway": "specwhisper-gateway",
}


@dataclass(frozen=True)
class Started:
    """A server as a file starts it.

    Attributes
    ----------
    where : the file, and the part of it.
    role : target, draft or gateway; it sees the secrets of that role.
    """

    where: str
    role: str
    program: str
    arguments: tuple[str, ...]

    @property
    def flags(self) -> dict[str, Any]:
        """The values that the command line reads; wrong arguments are an error."""
        return flags_of(self.program, self.arguments)

    @property
    def secrets(self) -> set[str]:
        """Names of the secret files that it reads."""
        return set(re.findall(rf"{SECRETS}([\w.-]+)", " ".join(self.arguments)))


@cache
def flags_of(program: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    return dict(command_of(program).make_context(program, list(arguments)).params)


@cache
def command_of(program: str) -> Any:
    """Return a server's command line."""
    return typer.main.get_command(app_of(SETTINGS[program], lambda _: None))


def read_compose(name: str) -> dict[str, Any]:
    """Read a compose file as it is where no variable is set."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DEPLOY / name).read_text())
    return yaml.safe_load(text)


@cache
def dockerfile() -> dict[str, dict[str, Any]]:
    """Return the last instruction of each kind in each stage of the Dockerfile, JSON parsed."""
    stages: dict[str, dict[str, Any]] = {}
    text = re.sub(r"\s*\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text())
    for line in text.splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = dict(stages.get(base, {}), FROM=base)
        elif instruction.isupper() and stages:
            found = re.search(r"\[.*\]$", rest)
            stages[name][instruction] = json.loads(found[0]) if found else rest
    return stages


def after_init(command: list[str]) -> str:
    """Return the program that a container's init starts."""
    *init, program = command
    assert init == INIT
    return program


def in_compose(*names: str) -> Iterator[Started]:
    """Yield the servers that compose files start; entry points are those of the images."""
    for name in names:
        for role, service in read_compose(name)["services"].items():
            yield Started(f"{name}, {role}", role, PROGRAMS[role], tuple(service["command"]))


def in_images() -> Iterator[Started]:
    """Yield the servers that images start by default."""
    for role in PROGRAMS:
        stage = dockerfile()[role]
        yield Started(f"Dockerfile, {role}", role, after_init(stage["ENTRYPOINT"]), tuple(stage["CMD"]))


@cache
def rendered(overlay: str) -> list[dict[str, Any]]:
    """Return the manifests of an overlay, rendered by kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which renders manifests, is not installed")
    folder = str(KUBERNETES / overlay)
    output = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert output.returncode == 0, output.stderr
    return list(yaml.safe_load_all(output.stdout))


def of_kind(overlay: str, *kinds: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of some kinds, by name."""
    return {m["metadata"]["name"]: m for m in rendered(overlay) if m["kind"] in kinds}


def workloads(overlay: str) -> dict[str, dict[str, Any]]:
    """Return the workloads, by role."""
    return of_kind(overlay, "Deployment", "StatefulSet")


def pod_of(workload: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a workload's pod and its only container."""
    pod = workload["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return pod, container


def in_kubernetes(overlay: str) -> Iterator[Started]:
    """Yield the servers that an overlay starts without Ray."""
    for role, workload in workloads(overlay).items():
        _, container = pod_of(workload)
        program = after_init(container["command"])
        yield Started(f"{overlay}, {role}", role, program, tuple(container["args"]))


def ray_pods() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the Ray cluster of the overlay ``ray``, and the templates of its pods: head first."""
    [service] = of_kind("ray", "RayService").values()
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return cluster, [group["template"] for group in groups]
