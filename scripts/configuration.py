"""Write the tables of docs/configuration.md from the programs' settings classes.

Run ``python -m scripts.configuration`` after a setting has changed; a test compares.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from specwhisper.settings.setting import PANELS, Flag, Settings, flags_of
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig
from specwhisper_wyoming.config import WyomingConfig

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
PROGRAMS: dict[str, type[Settings]] = {
    "specwhisper-target-server": TargetConfig,
    "specwhisper-draft-server": DraftConfig,
    "specwhisper-gateway": GatewayConfig,
    "specwhisper-wyoming": WyomingConfig,
}


def with_tables(page: str) -> str:
    for program, settings in PROGRAMS.items():
        section = re.compile(rf"(?<=^## {program}\n\n).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
        page = section.sub(lambda _, settings=settings: tables_of(settings) + "\n", page, count=1)
    return page.rstrip("\n") + "\n"


def tables_of(settings: type[Settings]) -> str:
    """Return a table for each panel of --help."""
    flags, tables = flags_of(settings), []
    for panel in PANELS:
        rows = [row_of(flag) for flag in flags if flag.option.panel == panel]
        if rows:
            head = [f"### {panel}", "", "| Flag | Variable | Default | Meaning |", "|---|---|---|---|"]
            tables.append("\n".join([*head, *rows]) + "\n")
    return "\n".join(tables)


def row_of(flag: Flag) -> str:
    """Return a setting's row."""
    default = flag.default.value if isinstance(flag.default, Enum) else flag.default
    if default in (None, ()):
        default = ""
    elif isinstance(default, bool):
        default = "on" if default else "off"
    cells = [f"`{flag_of(flag)}`", f"`{flag.variable}`", f"`{default}`" if default != "" else ""]
    return f"| {' | '.join([*cells, flag.option.help.replace('|', '/')])} |"


def flag_of(flag: Flag) -> str:
    """Return a flag with its value's placeholder, or both forms of a switch that is not off by default."""
    if flag.option.metavar:
        return f"{flag.flag} {flag.option.metavar.replace('|', ' or ')}"
    return flag.flag if flag.default is False else f"{flag.flag}`, `--no-{flag.flag[2:]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
