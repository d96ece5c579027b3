"""The installed release of Ray has the private API that compat.py uses."""

import inspect
import tomllib
from pathlib import Path

import ray
from packaging.requirements import Requirement
from packaging.version import Version
from ray import serve
from ray.serve._private.client import ServeControllerClient
from ray.serve.handle import DeploymentBroadcastResponse

from specwhisper_deploy import compat

ROOT = Path(__file__).parents[3]


def test_the_tested_release_is_pinned_and_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [pinned] = [r for r in map(Requirement, extras["serve"]) if r.name == "ray"]
    assert pinned.specifier.contains(compat.RAY)
    assert Version(ray.__version__).release[:2] == Version(compat.RAY).release, (
        "run tests/cluster with this release, then write it to specwhisper_deploy/compat.py"
    )


def test_the_installed_release_has_the_private_api():
    assert "_blocking" in inspect.signature(ServeControllerClient.deploy_apps).parameters
    assert callable(ServeControllerClient.get_serve_details)
    assert "_blocking" in inspect.signature(serve.delete).parameters
    assert inspect.iscoroutinefunction(DeploymentBroadcastResponse._fetch_replica_results_async)
