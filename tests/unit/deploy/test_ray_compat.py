"""Ray's private API is used in one module, and the installed release has it."""

import ast
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


def private_names(source: str) -> set[str]:
    """Return other objects' names that begin with an underscore."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {part for part in module.split(".") if part.startswith("_")}
                found |= {alias.name for alias in names}
            case ast.Attribute(value=ast.Name(id="self" | "cls")) | ast.Attribute(value=ast.Call()):
                pass  # its own, or super()'s
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
    found.discard("_exit")  # of os, where it is public
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_no_other_module_uses_private_names():
    modules = Path(compat.__file__).parent.glob("*.py")
    used = {path.name: private_names(path.read_text()) for path in modules}
    assert used.pop(Path(compat.__file__).name)
    assert {name: names for name, names in used.items() if names} == {}
