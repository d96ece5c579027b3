"""Ray on this machine, shared by the tests, with targets of random weights."""

import os

# Ray reads these when it is imported. By default replicas report their sessions every ten seconds only.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S"] = "0.5"

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator
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
NUM_CPUS = 8  # that Ray may assign; the machine may have fewer
SESSIONS_PER_REPLICA = 2.0
DRAIN_S = 30.0
APPLICATION = "targets"
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
START_TIMEOUT_S = 120.0  # for a replica to start on a busy machine
POLL_S = 0.1  # Serve's status costs the controller and this process some milliseconds


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition of the cluster holds."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while not condition():
            await asyncio.sleep(POLL_S)


def serve_config(*applications: dict[str, Any]) -> ServeDeploySchema:
    """Return a configuration of Ray Serve without its proxies."""
    config = {
        "proxy_location": "Disabled",
        "logging_config": {"log_level": "WARNING", "enable_access_log": False},
        "applications": applications,
    }
    return ServeDeploySchema.model_validate(config)


def application(
    builder: str, args: dict[str, Any], deployment: dict[str, Any], name: str = ""
) -> dict[str, Any]:
    """Return our own application in a configuration, with the options of one of its deployments."""
    return {
        "name": name or builder,
        "import_path": f"specwhisper_deploy.serve_app:{builder}",
        "route_prefix": None,
        "args": args,
        "deployments": [{"ray_actor_options": {"num_cpus": 0.1}} | deployment],
    }


class Targets:
    """One or two targets and their locator.

    Attributes
    ----------
    locator : its address.
    """

    def __init__(self, model: Path, port: int) -> None:
        self.locator = f"127.0.0.1:{port}"
        self._port = port
        self._flags: dict[str, Any] = {
            "model": str(model),
            "threads": 1,
            "max-sessions": MAX_SESSIONS,
            "metrics-port": 0,
            "drain-timeout": DRAIN_S,
        }

    async def deploy(self) -> None:
        """Run two replicas; those that run already stay."""
        self._deploy(min_replicas=2)
        await self.wait_until_running(2)

    def deploy_next_version(self) -> None:
        """Start to replace both replicas by others."""
        self._flags["drain-timeout"] += 1
        self._deploy(min_replicas=2)

    async def scale_with_sessions(self) -> None:
        """Run as many replicas as sessions need, one or two; without sessions one."""
        self._deploy(min_replicas=1)
        await self.wait_until_running(1)

    def _deploy(self, min_replicas: int) -> None:
        autoscaling = {
            "min_replicas": min_replicas,
            "max_replicas": 2,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.5,
            "look_back_period_s": 0.5,
            # The same in all tests: Ray restarts all replicas where it changes.
            "policy": {
                "policy_function": "specwhisper_deploy.scaling:BySessions",
                "policy_kwargs": {"sessions_per_replica": SESSIONS_PER_REPLICA},
            },
        }
        deployment = {
            "name": "Target",
            "max_surge_percent": 100,
            "health_check_period_s": 0.5,
            "autoscaling_config": autoscaling,
        }
        args = {"target": self._flags, "locator": {"port": self._port}}
        deploy(serve_config(application(APPLICATION, args, deployment)))

    @property
    def num_running(self) -> int | None:
        """Targets that run; ``None`` while some start or stop."""
        application = serve.status().applications[APPLICATION]
        states = application.deployments["Target"].replica_states if application.deployments else {}
        return states.get("RUNNING", 0) if set(states) <= {"RUNNING"} else None

    async def wait_until_running(self, number: int) -> None:
        """Wait until this number of targets runs, and none starts or stops."""
        await until(lambda: self.num_running == number)


def are_running(*names: str) -> bool:
    """Return whether applications run."""
    states = serve.status().applications
    return all(name in states and states[name].status == "RUNNING" for name in names)


def controller_process() -> psutil.Process:
    """Return the process of Serve's controller, which starts, counts and stops replicas."""
    return psutil.Process(ray.get(_controller().get_pid.remote()))


def kill_controller() -> None:
    """Kill Serve's controller; Ray starts it again."""
    ray.kill(_controller(), no_restart=False)


def _controller() -> Any:
    return ray.get_actor(CONTROLLER, namespace="serve")


def process_at(address: str) -> psutil.Process:
    """Return the process that listens at an address."""
    port = int(address.rpartition(":")[2])
    found = [c.pid for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    return psutil.Process(found[0])


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> tuple[Path, Path]:
    """Checkpoints of a target and of a draft."""
    folder = tmp_path_factory.mktemp("checkpoints")
    small = {"d_model": 32, "max_target_positions": 100}
    return (
        save_checkpoint(Shape(**small), folder / "target"),
        save_checkpoint(Shape(**small, decoder_layers=1, seed=1), folder / "draft"),
    )


def start_ray() -> None:
    """Start Ray; try again where the machine is so busy that Ray gives up waiting for itself."""
    for is_retry in (False, True):
        try:
            # Without "local" it would join a cluster that happens to run on this machine.
            ray.init(
                "local", namespace="serve", num_cpus=NUM_CPUS, include_dashboard=False, log_to_driver=False
            )
            return
        except RuntimeError:
            ray.shutdown()
            with warnings.catch_warnings():  # about the process that it has left
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            if is_retry:
                raise


def stop_ray() -> None:
    """Stop Ray, if this process runs it."""
    if ray.is_initialized():
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="package")
def _ray_ends_with_these_tests() -> Iterator[None]:
    yield
    stop_ray()


@pytest.fixture
def shared_ray(_ray_ends_with_these_tests) -> None:
    """Start Ray for this test and those after it."""
    if not ray.is_initialized():
        start_ray()


@pytest.fixture
def no_shared_ray() -> None:
    """Stop the shared Ray: this test starts its own, and two at once take each other's ports."""
    stop_ray()


@pytest.fixture(scope="session")
def _targets(checkpoints, unused_tcp_port_factory) -> Targets:
    return Targets(checkpoints[0], unused_tcp_port_factory())


@pytest.fixture
def targets(shared_ray, _targets) -> Targets:
    """Targets on the shared Ray, not yet deployed."""
    return _targets
