"""Write docs/command-line.md from the commands of ``specwhisper``.

Run ``python -m scripts.command_line`` after an option has changed; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer.main

from specwhisper_client.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
WIDTH = 100  # characters of a line


def with_commands(page: str) -> str:
    introduction = page[: page.index("\n## ")] if "\n## " in page else page.rstrip("\n") + "\n"
    return introduction + "".join(f"\n{section}" for section in sections())


def sections() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield section("specwhisper [OPTIONS] COMMAND", group)
    for name, command in group.commands.items():
        yield section(f"specwhisper {name}", command)
        for inner_name, inner in getattr(command, "commands", {}).items():
            yield section(f"specwhisper {name} {inner_name}", inner)


def section(heading: str, command: Any) -> str:
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    rows = [row_of(parameter) for parameter in command.params if not is_general(parameter)]
    table = ["| Option | Default | Meaning |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"## {heading}", "", *wrap(paragraph, WIDTH), "", *table])


def is_general(parameter: Any) -> bool:
    return parameter.name in ("help", "version") or getattr(parameter, "hidden", False)


def row_of(parameter: Any) -> str:
    default = "" if callable(parameter.default) else shown(parameter.default)
    meaning = " ".join((parameter.help or "").split()).replace("|", "/")
    return f"| {names_of(parameter)} | {default} | {meaning} |"


def names_of(parameter: Any) -> str:
    """Return a parameter's names with the placeholder of its value."""
    placeholder = (parameter.metavar or parameter.name.upper()).replace("|", " or ")
    if parameter.param_type_name == "argument":
        return f"`{placeholder}`"
    value = "" if parameter.is_flag else f" {placeholder}"
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def shown(default: Any) -> str:
    """Return a default as it is written on a command line: nothing for none and for a switch that is off."""
    if isinstance(default, bool):
        return "on" if default else ""
    if default is None or default in ("", (), []):
        return ""
    return f"`{default.value if isinstance(default, Enum) else default}`"


if __name__ == "__main__":
    PAGE.write_text(with_commands(PAGE.read_text()))
