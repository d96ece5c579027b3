"""Write docs/measurements.md from the data files in docs/measurements/.

Run ``python -m scripts.measurements`` after a file has changed; a test compares. A table has columns and
rows, or names a table of experiments.latency, which follows from docs/figures/latency-*.json.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from experiments.latency.page import FOLDER, TABLES, read, rows_of

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "measurements.md"
DATA = DOCS / "measurements"
WIDTH = 100  # characters of a line
INTRODUCTION = """\
# Measurements

Every published figure, with the command that repeats it, the machine, the models and the date.
**Nothing has run on a GPU yet**: all figures are of CPUs unless a line says simulated or expected.

In ratios, below 1 is faster; brackets hold the 95 % interval over repeats, or recordings and
rounds. *Tokens per pass* are the tokens that the target wrote per forward pass; *accepted* is the
share of verified candidates that it kept. Each server has its own cores, with as many threads; arms
run in turns, each round in a new order.

Every [program](../experiments/README.md) takes `--quick` for a run of two minutes, `--json FILE`
for raw figures, and `--check`, which compares the results with their goals and exits with 1 if one
is missed. `python -m scripts.measurements` writes this page.
"""


def page() -> str:
    """Return the page: its introduction, and a section for each data file, in the order of their names."""
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.toml"))]
    return "\n".join([INTRODUCTION, *map(section, files)])


def section(data: Mapping[str, Any]) -> str:
    """Return what one data file holds: heading, commands, conditions, what to read from it, tables, notes."""
    parts = [f"## {data['title']}", "\n".join(f"    {command}" for command in data.get("commands", ()))]
    parts += [wrapped(text) for text in (conditions(data), data["reading"])]
    for table in data.get("tables", ()):
        parts += [wrapped(table.get("caption", "")), "\n".join(lines_of(table))]
    parts.append("\n".join(wrapped(f"- {note}", "  ") for note in data.get("notes", ())))
    return "\n\n".join(part for part in parts if part) + "\n"


def conditions(data: Mapping[str, Any]) -> str:
    """Return in sentences on which machine, with which models, when and with what the figures were made."""
    day = data["date"]
    when = f"{day.day} {day:%B %Y}" + (f", commit {data['commit']}" if "commit" in data else "")
    sentences = (data["machine"], f"Models and audio: {data['models']}", when, data.get("software", ""))
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def lines_of(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table."""
    if "latency" in table:
        yield TABLES[table["latency"]](read(FOLDER))
    else:
        yield rows_of(table["columns"], table["rows"])


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph or an item in lines of a page."""
    lines = wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
