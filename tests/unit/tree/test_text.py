"""Form of pages, docstrings and folders: all of them are short."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("specwhisper", "client", "draft_server", "target_server", "gateway", "deploy")
GENERATED = ROOT / "specwhisper" / "wire" / "v1"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "[a-z]*/README.md", "[a-z]*/*/README.md")
    for path in ROOT.glob(pattern)
)
MAX_WIDTH = 100
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
MAX_README_LINES = 200
MAX_PARAGRAPH_LINES = 5
MAX_FIRST_LINE = 79
MAX_MODULES = 21
MAX_LINES = 400


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line outside of code, tables, headings, images and link definitions."""
    is_code = False  # or the fields at the head of a model card
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```") or line == "---":
            is_code = not is_code
        elif not is_code and not line.startswith(("|", "    ", "![", "#", "[", "<")):
            yield number, line


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_a_page_are_wrapped(page):
    too_long = [f"{page}:{number}: {line}" for number, line in prose(page) if len(line) > MAX_WIDTH]
    assert not too_long, "\n" + "\n".join(too_long)


@pytest.mark.parametrize("page", PAGES)
def test_paragraphs_of_a_page_are_short(page):
    too_long, lines, last = [], 0, 0
    for number, line in prose(page):
        is_first = number != last + 1 or ITEM.match(line)
        lines, last = (0 if not line.strip() else 1 if is_first else lines + 1), number
        if lines == MAX_PARAGRAPH_LINES + 1:
            too_long.append(f"{page}:{number}: {line}")
    assert not too_long, "\n" + "\n".join(too_long)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def modules(package: str) -> list[Path]:
    """Return the modules of a package that are not generated."""
    found = [path for path in sorted((ROOT / package).rglob("*.py")) if GENERATED not in path.parents]
    assert found
    return found


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_folders_are_not_flat(package):
    num_modules = Counter(path.parent for path in modules(package) if path.name != "__init__.py")
    too_flat = [f"{folder}: {number}" for folder, number in num_modules.items() if number > MAX_MODULES]
    assert too_flat == []


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_short(package):
    num_lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(package)}
    too_long = [f"{path}: {number}" for path, number in num_lines.items() if number > MAX_LINES]
    assert too_long == []


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of the docstrings of a module and of its public classes and functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = getattr(node, "name", path.stem)
        is_public = not name.startswith("_") or name.startswith("__")
        if is_public and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


@pytest.mark.parametrize("package", PACKAGES)
def test_the_first_line_of_a_docstring_is_short(package):
    too_long = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in modules(package)
        for number, text in docstrings(path)
        if len(line := text.splitlines()[0]) > MAX_FIRST_LINE
    ]
    assert not too_long, "\n" + "\n".join(too_long)
