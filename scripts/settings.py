"""Write docs/settings.md from the servers' settings classes and the commands of ``specwhisper``.

Run ``python -m scripts.settings`` after a setting or an option has changed; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from enum import Enum
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer.main

from specwhisper.settings.setting import PANELS, Flag, Settings, flags_of
from specwhisper_client.cli.main import app
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig
from specwhisper_wyoming.config import WyomingConfig

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
WIDTH = 100  # characters of a line
FEW = 10  # options of a command without a table of its own
PROGRAMS: dict[str, type[Settings]] = {
    "specwhisper-target-server": TargetConfig,
    "specwhisper-draft-server": DraftConfig,
    "specwhisper-gateway": GatewayConfig,
    "specwhisper-wyoming": WyomingConfig,
}
SHORT_NAMES = dict(zip(PROGRAMS, ("target", "draft", "gateway", "wyoming"), strict=True))
INTRODUCTION = """\
# Settings

Every setting of the servers and every option of `specwhisper`: its name, its default and its
meaning. After reading this page you can configure a server by command line, by environment or under
Ray. `python -m scripts.settings` writes it from the code.

    specwhisper-target-server --model large-v3 --device cuda --max-sessions 16
    SPECWHISPER_MODEL=large-v3 SPECWHISPER_DEVICE=cuda specwhisper-target-server --max-sessions 16

## Servers

- The environment variable of a flag is its name after `SPECWHISPER_`, in capitals: `--max-sessions`
  is `SPECWHISPER_MAX_SESSIONS`. A flag takes precedence over its variable. Switches take `1` or `0`
  in a variable.
- Under [Ray](serving.md#ray) the same names stand in the configuration file, without leading
  dashes: `max-sessions: 16`. A file takes precedence over the variables of its machines.
- A flag that may be repeated is a list in that file (`served-model-name: [large-v3, whisper-1]`),
  and words separated by spaces in a variable.
- A wrong value, or a flag without effect, is an error before a model loads: one sentence with the
  flag or variable, the value and what is valid. The exit status of every program is then 2, as for
  a missing extra; it is 1 for what fails later.
- Secrets never stand on the command line. Besides the files below, `SPECWHISPER_TOKENS` holds the
  tokens of callers, `SPECWHISPER_TARGET_TOKEN` the draft server's token for targets,
  `SPECWHISPER_SERVER_TOKEN` the token of the gateway or of the Wyoming server for draft servers,
  and `SPECWHISPER_API_KEY` a single key for the gateway.
"""
COMMANDS = """\
## Commands

- Options of connections stand before the command: `specwhisper --use-ssl transcribe a.wav`.
- An option may be written with `_` for `-`, as in openai-whisper: `--initial_prompt`.
- The exit status is that of servers, and 130 after Ctrl-C.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *servers(), COMMANDS, *commands()])


def servers() -> Iterator[str]:
    """Yield a table for each panel of --help, with a row for each setting, whichever servers have it."""
    for panel in PANELS:
        rows: dict[tuple[str, str], list[str]] = {}
        for program, settings in PROGRAMS.items():
            for flag in flags_of(settings):
                if flag.option.panel == panel:
                    rows.setdefault(cells_of(flag), []).append(SHORT_NAMES[program])
        head = [f"### {panel}", "", "| Flag | Server | Default | Meaning |", "|---|---|---|---|"]
        body = [
            f"| {name} | {', '.join(servers) if len(servers) < len(PROGRAMS) else 'all'} | {rest} |"
            for (name, rest), servers in rows.items()
        ]
        yield "\n".join([*head, *body, ""])


def cells_of(flag: Flag) -> tuple[str, str]:
    """Return a setting's flag, and its default and meaning."""
    return f"`{form_of(flag)}`", f"{shown(flag.default)} | {in_a_cell(flag.option.help)}"


def form_of(flag: Flag) -> str:
    """Return a flag with its value's placeholder, or both forms of a switch that is not off by default."""
    if flag.option.metavar:
        return f"{flag.flag} {flag.option.metavar.replace('|', ' or ')}"
    return flag.flag if flag.default is False else f"{flag.flag}`, `--no-{flag.flag[2:]}"


def commands() -> Iterator[str]:
    """Yield a section for each command with many options, and one for all others."""
    group: Any = typer.main.get_command(app)
    others = [*rows_of("all, before the command", group)]
    known: set[str] = set()  # rows of the commands before
    for name, command in group.commands.items():
        if len(command.params) > FEW:
            yield section(f"specwhisper {name}", command, known)
            known.update(map(row_of, options(command)))
            continue
        others += rows_of(name, command)
        for inner_name, inner in getattr(command, "commands", {}).items():
            others += rows_of(f"{name} {inner_name}", inner)
    head = ["### Other commands", "", "| Command | Option | Default | Meaning |", "|---|---|---|---|"]
    yield "\n".join([*head, *others, ""])


def section(heading: str, command: Any, known: Set[str]) -> str:
    """Return a command's heading, meaning and table, without the rows of commands before."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    rows = [row_of(option) for option in options(command)]
    repeated = ", ".join(f"`{option.opts[0]}`" for option in options(command) if row_of(option) in known)
    table = ["| Option | Default | Meaning |", "|---|---|---|", *(row for row in rows if row not in known)]
    if repeated:
        table.append(f"| {repeated} | | as above |")
    return "\n".join([f"### {heading}", "", *wrap(paragraph, WIDTH), "", *table, ""])


def rows_of(name: str, command: Any) -> Iterator[str]:
    """Yield the rows of a command in the table of several."""
    return (f"| {name} {row_of(parameter)}" for parameter in options(command))


def options(command: Any) -> list[Any]:
    """Return the arguments and options of a command that are its own."""
    hidden = ("help", "version")
    return [each for each in command.params if each.name not in hidden and not getattr(each, "hidden", False)]


def row_of(parameter: Any) -> str:
    """Return the row of an argument or option."""
    default = "" if callable(parameter.default) else shown(parameter.default, off="")
    return f"| {names_of(parameter)} | {default} | {in_a_cell(parameter.help or '')} |"


def names_of(parameter: Any) -> str:
    """Return a parameter's names with the placeholder of its value."""
    placeholder = (parameter.metavar or parameter.name.upper()).replace("|", " or ")
    if parameter.param_type_name == "argument":
        return f"`{placeholder}`"
    value = "" if parameter.is_flag else f" {placeholder}"
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def shown(default: Any, off: str = "off") -> str:
    """Return a default as it is written on a command line: nothing where there is none."""
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, bool):
        return "on" if default else off
    return "" if default is None or default in ("", (), []) else f"`{default}`"


def in_a_cell(text: str) -> str:
    """Return a text as a table's cell may hold it."""
    return " ".join(text.split()).replace("|", "/")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
