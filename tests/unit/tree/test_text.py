"""Pages: their lines are wrapped, their paragraphs short."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
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
