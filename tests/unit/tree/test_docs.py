"""The pages name what exists, are wrapped, have short paragraphs, and follow from their data."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.measurements import DATA, PAGE, page

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


FILES = sorted(DATA.glob("*.toml"))


def test_the_page_is_that_of_its_data():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.measurements"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_names_its_conditions_and_its_rows_are_complete(path):
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {"title", "machine", "models", "date", "reading"} <= data.keys()
    assert "tables" in data or "notes" in data
    for table in data.get("tables", ()):
        assert "latency" in table or {len(row) for row in table["rows"]} == {len(table["columns"])}


WRAPPED = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "[a-z]*/README.md", "[a-z]*/*/README.md")
    for path in ROOT.glob(pattern)
)
MAX_WIDTH = 100
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
MAX_README_LINES = 200
MAX_PARAGRAPH_LINES = 5


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line outside of code, tables, headings, images and link definitions."""
    is_code = False  # or the fields at the head of a model card
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```") or line == "---":
            is_code = not is_code
        elif not is_code and not line.startswith(("|", "    ", "![", "#", "[", "<")):
            yield number, line


@pytest.mark.parametrize("page", WRAPPED)
def test_lines_of_a_page_are_wrapped_and_its_paragraphs_short(page):
    too_long, lines, last = [], 0, 0
    for number, line in prose(page):
        is_first = number != last + 1 or ITEM.match(line)
        lines, last = (0 if not line.strip() else 1 if is_first else lines + 1), number
        if lines == MAX_PARAGRAPH_LINES + 1 or len(line) > MAX_WIDTH:
            too_long.append(f"{page}:{number}: {line}")
    assert not too_long, "\n" + "\n".join(too_long)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES
