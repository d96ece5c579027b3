"""Workflows of the forge and the images' lock files: valid, pinned and complete."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.deploy.manifests import PROGRAMS, ROOT, dockerfile
from tests.deploy.test_manifests import tool

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
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


LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "python_version": "3.11",
}


def text_of(role: str) -> str:
    return (ROOT / "requirements" / f"{role}.txt").read_text()


def locked(role: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text_of(role), re.MULTILINE))


def missing(required: list[str], found: dict[str, str]) -> list[str]:
    """Return the requirements that are absent from `found`, or there in another version."""
    wrong = []
    for requirement in map(Requirement, required):
        version = found.get(canonicalize_name(requirement.name))
        applies = requirement.marker is None or requirement.marker.evaluate(LINUX)
        if applies and (version is None or version not in requirement.specifier):
            wrong.append(f"{requirement}, not {version}")
    return wrong


def requirements_of(extra: str) -> list[str]:
    """Return the requirements of an extra, and of those that it contains."""
    found = []
    for requirement in PROJECT["project"]["optional-dependencies"][extra]:
        contained = Requirement(requirement)
        if contained.name == "specwhisper":
            found += [r for each in contained.extras for r in requirements_of(each)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("role", sorted(IMAGES))
def test_lock_files_satisfy_pyproject(role):
    extras = re.match(r"# Of specwhisper\[(.*?)\]", text_of(role))[1].split(",")
    required = [r for extra in extras for r in requirements_of(extra)]
    required += PROJECT["project"]["dependencies"]
    assert missing(required, locked(role)) == [], "run scripts/lock"


def test_build_requirements_are_locked():
    assert missing(PROJECT["build-system"]["requires"], locked("build")) == []


def test_images_have_the_torch_of_the_tests():
    constraint = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert {locked("target")["torch"], locked("ray")["torch"]} == {constraint}
    for role in ("draft", "gateway"):
        assert not {"torch", "transformers"} & locked(role).keys()
