"""Workflows of the forge: valid, pinned, without more permissions than needed, and complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.deploy.manifests import PROGRAMS, ROOT, dockerfile
from tests.deploy.test_manifests import tool
from tests.deploy.test_requirements import PROJECT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
IMAGES = {*PROGRAMS, "ray"}


def jobs(name: str) -> dict[str, Any]:
    """Return the jobs of a workflow."""
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]


def test_workflows_are_valid_for_github():
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *FILES)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_commands_hold_no_expressions(path: Path):
    text = path.read_text()
    for action in re.findall(r"uses: (\S+)(?!\S)(.*)", text):
        name, comment = action
        assert name.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name), name
        assert name.startswith("./") or re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", ""), "an expression could inject commands: use env"


def test_every_image_is_built_by_ci_and_by_a_release():
    assert dockerfile().keys() >= IMAGES
    assert set(jobs("ci.yml")["images"]["strategy"]["matrix"]["image"]) == IMAGES
    release = jobs("release.yml")
    for job in ("image", "image-index"):
        assert set(release[job]["strategy"]["matrix"]["image"]) == IMAGES
    for steps in (jobs("ci.yml")["images"]["steps"], release["image"]["steps"]):
        [build] = [step["run"] for step in steps if " build " in step.get("run", "")]
        assert '--target "$IMAGE"' in build


def test_ci_runs_every_supported_python():
    supported = SpecifierSet(PROJECT["project"]["requires-python"])
    tested = jobs("ci.yml")["test"]["strategy"]["matrix"]["python"]
    assert all(version in supported for version in tested)
    classifiers = PROJECT["project"]["classifiers"]
    assert [f"Programming Language :: Python :: {version}" for version in tested] == [
        each for each in classifiers if "Python :: 3" in each
    ]


def test_a_release_is_published_only_after_its_checks():
    release = jobs("release.yml")

    def needs(name: str) -> set[str]:
        """Return all jobs that end before a job starts."""
        direct = release[name].get("needs", [])
        direct = [direct] if isinstance(direct, str) else direct
        return {*direct, *(each for job in direct for each in needs(job))}

    assert {"ci", "package"} <= needs("pypi") & needs("image-index") & needs("page")
    assert release["ci"]["uses"] == "./.github/workflows/ci.yml"
