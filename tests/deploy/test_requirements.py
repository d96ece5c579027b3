"""Lock files of images satisfy pyproject.toml, have hashes, and name no package index."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.manifests import DEPLOY, ROOT

EXTRAS = {
    "target": ["server", "tracing"],
    "draft": ["draft", "media", "riva", "tracing"],
    "gateway": ["gateway", "wyoming", "tracing"],
    "ray": ["server", "gateway", "riva", "serve", "tracing"],
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
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


@pytest.mark.parametrize("role", EXTRAS)
def test_lock_files_satisfy_pyproject(role):
    required = [r for extra in EXTRAS[role] for r in requirements_of(extra)]
    required += PROJECT["project"]["dependencies"]
    assert missing(required, locked(role)) == [], "run scripts/lock"
    assert text_of(role).startswith(f"# Of specwhisper[{','.join(EXTRAS[role])}]")


def test_build_requirements_are_locked():
    assert missing(PROJECT["build-system"]["requires"], locked("build")) == []


def test_an_older_lock_would_be_found():
    assert missing(["grpcio>=1.76,<2"], {"grpcio": "1.75.0"}) == ["grpcio<2,>=1.76, not 1.75.0"]
    assert missing(["grpcio>=1.76,<2"], {}) == ["grpcio<2,>=1.76, not None"]


@pytest.mark.parametrize("role", ["build", *EXTRAS])
def test_every_line_has_a_version_and_hashes_and_no_index(role):
    lines = text_of(role).replace("\\\n", "").splitlines()
    for line in lines[1:]:
        assert re.fullmatch(r"[\w.-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line
    assert f"requirements/{role}.txt" in (DEPLOY / "Dockerfile").read_text()


def test_images_have_the_torch_of_the_tests():
    constraint = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert {locked("target")["torch"], locked("ray")["torch"]} == {constraint}
    for role in ("draft", "gateway"):
        assert not {"torch", "transformers"} & locked(role).keys()
