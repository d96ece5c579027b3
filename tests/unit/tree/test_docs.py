"""The pages name files and tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FOLDERS = (
    "client", "deploy", "docs", "draft_server", "examples", "experiments", "extras", "gateway", "proto",
    "scripts", "specwhisper", "target_server", "tests", ".github",
)  # fmt: skip
PRODUCT = ("client", "draft_server", "extras", "gateway", "specwhisper", "target_server")
FILE = re.compile(r"`(?:\w+:)?([\w./-]+\.(?:py|proto|yml))`")
TEST = re.compile(r"`(test_\w+)`")
USERS = {"client.py"}  # a file of a user, which the layout must not hide


@pytest.fixture(scope="module")
def files() -> list[str]:
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in (*ROOT.iterdir(), *below) if path.is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_files_that_exist(page, files):
    named = set(FILE.findall(page.read_text(encoding="utf-8"))) - USERS
    missing = [name for name in named if not any(file.endswith(f"/{name}") for file in files)]
    assert missing == []


def test_pages_name_tests_that_exist():
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for page in PAGES for name in TEST.findall(page.read_text(encoding="utf-8"))}
    assert named, "CONTRIBUTING names a pattern to follow"
    assert [name for name in named if f"def {name}(" not in code] == []


def test_the_walks_name_files_and_methods_that_exist(files):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = page.partition("\n## Three walks\n")[2].partition("\n## ")[0]
    named, methods = set(re.findall(r"[\w/]+\.py", walks)), set(re.findall(r"\b([A-Z]\w+)\.(\w+)", walks))
    assert len(named) > 30 and len(methods) > 50
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
    code = "\n".join(
        path.read_text(encoding="utf-8") for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")
    )
    classes, functions = (set(re.findall(rf"\b{word} (\w+)", code)) for word in ("class", "def"))
    assert [each for each in sorted(methods) if each[0] not in classes or each[1] not in functions] == []


def test_every_experiment_is_listed():
    programs = {path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py")}
    listed = set(
        re.findall(r"`([\w.]+)\b[^`]*`", (ROOT / "experiments" / "README.md").read_text(encoding="utf-8"))
    )
    assert programs and programs <= listed
