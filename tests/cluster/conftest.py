"""A Ray cluster for the tests of each file, with targets of random weights."""

from __future__ import annotations

import os

# Read when Ray is imported: tests shall not wait ten seconds until the controller knows of sessions.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S"] = "0.5"

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray import serve
from ray.serve.schema import ServeDeploySchema

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper_deploy.command import deploy

MAX_SESSIONS = 8
NUM_CPUS = 8  # that Ray counts with; there may be fewer
SESSIONS_PER_REPLICA = 2.0
DRAIN_S = 30.0
APPLICATION = "targets"
CONTROLLER = "SERVE_CONTROLLER_ACTOR"


class Cluster:
    """Targets behind a locator.

    Attributes
    ----------
    locator : where it is reached.
    """

    def __init__(self, target: Path, port: int) -> None:
        self.locator = f"127.0.0.1:{port}"
        self.flags: dict[str, Any] = {
            "model": str(target),
            "threads": 1,
            "max-sessions": MAX_SESSIONS,
            "metrics-port": 0,  # several on a node, and two versions at once
        }
        self._port = port

    def deploy(self) -> None:
        """Have two replicas; those that run stay."""
        self._deploy(min_replicas=2)

    def deploy_next_version(self) -> None:
        """Have two others in place of those that run."""
        self.flags["drain-timeout"] = self.flags.get("drain-timeout", DRAIN_S) + 1
        self.deploy()

    def scale(self) -> None:
        """Have one or two replicas, as sessions ask for; those that run stay, as long as they are wanted."""
        self._deploy(min_replicas=1)

    def _deploy(self, min_replicas: int) -> None:
        scaling = {
            "min_replicas": min_replicas,
            "max_replicas": 2,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.5,
            "look_back_period_s": 0.5,
            # Always the same: Ray takes another policy for another version.
            "policy": {
                "policy_function": "specwhisper_deploy.scaling:BySessions",
                "policy_kwargs": {"sessions_per_replica": SESSIONS_PER_REPLICA},
            },
        }
        config = {
            "proxy_location": "Disabled",
            "logging_config": {"log_level": "WARNING", "enable_access_log": False},
            "applications": [
                {
                    "name": APPLICATION,
                    "import_path": "specwhisper_deploy.serve_app:targets",
                    "route_prefix": None,
                    "args": {"target": self.flags, "locator": {"port": self._port}},
                    "deployments": [
                        {
                            "name": "Target",
                            "max_surge_percent": 100,
                            "health_check_period_s": 0.5,
                            "ray_actor_options": {"num_cpus": 0.1},
                            "autoscaling_config": scaling,
                        }
                    ],
                }
            ],
        }
        deploy(ServeDeploySchema.model_validate(config))

    @property
    def controller(self) -> Any:
        """Ray's actor that starts, counts and ends replicas."""
        return ray.get_actor(CONTROLLER, namespace="serve")

    def controller_process(self) -> psutil.Process:
        """Give the process that it runs in."""
        return psutil.Process(ray.get(self.controller.get_pid.remote()))

    def kill_controller(self) -> None:
        """Kill it; Ray starts it anew."""
        ray.kill(self.controller, no_restart=False)

    @property
    def num_running(self) -> int:
        """Targets that run."""
        application = serve.status().applications[APPLICATION]
        states = application.deployments["Target"].replica_states if application.deployments else {}
        return states.get("RUNNING", 0) if set(states) <= {"RUNNING"} else -1


def process_at(address: str) -> psutil.Process:
    """Give the process that listens at an address."""
    port = int(address.rpartition(":")[2])
    found = [c.pid for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    return psutil.Process(found[0])


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    small = {"d_model": 32, "max_target_positions": 100}
    return (
        save_checkpoint(Shape(**small), folder / "target"),
        save_checkpoint(Shape(**small, decoder_layers=1, seed=1), folder / "draft"),
    )


def start_ray() -> None:
    """Start a cluster; once more where the machine is so busy that Ray gives up waiting for itself."""
    for has_failed in (False, True):
        try:
            # "local": another test's cluster may run beside this one, and would be joined.
            ray.init(
                "local", namespace="serve", num_cpus=NUM_CPUS, include_dashboard=False, log_to_driver=False
            )
            return
        except RuntimeError:
            ray.shutdown()
            with warnings.catch_warnings():  # of the process that it has left behind
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            if has_failed:
                raise


@pytest.fixture(scope="module")
def cluster(checkpoints, unused_tcp_port_factory) -> Iterator[Cluster]:
    start_ray()
    try:
        yield Cluster(checkpoints[0], unused_tcp_port_factory())
    finally:
        serve.shutdown()
        ray.shutdown()
