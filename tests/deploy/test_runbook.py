"""The runbook explains every error and every log line of the servers, and its flags exist."""

import ast
import inspect
import re

import typer

import specwhisper.errors
import specwhisper_client.cli.main
from specwhisper.errors import SpecWhisperError
from specwhisper.wire.status import status_of
from tests.deploy.manifests import PROGRAMS, ROOT, command_of

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SERVERS = ("specwhisper", "draft_server", "target_server", "gateway", "client", "deploy", "extras")
OTHERS = ("kubectl", "docker")  # whose flags are not ours
LEVELS = {"_log", "log", "info", "warning", "error", "exception", "critical"}


def logged():
    """Yield the messages of the servers' log lines; whole sentences explain themselves."""
    for folder in SERVERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="logger" | "self"), attr=level), args=arguments
                    ) if level in LEVELS:
                        lines = [a.value for a in arguments if isinstance(a, ast.Constant)]
                        yield from (line for line in lines if not line.endswith("."))
                    case ast.Assign(targets=[ast.Name(id="message")], value=ast.Constant(value=str(line))):
                        yield line


def test_every_log_line_is_explained():
    lines = set(logged())
    assert {"ready", "draining", "target lost", "session ended"} <= lines
    assert [line for line in sorted(lines) if f"`{line}`" not in RUNBOOK] == []


def test_every_error_is_explained_with_its_status():
    errors = [
        error
        for _, error in inspect.getmembers(specwhisper.errors, inspect.isclass)
        if issubclass(error, SpecWhisperError)
    ]
    rows = [line for line in RUNBOOK.splitlines() if line.startswith("| `")]
    for error in errors:
        [row] = [row for row in rows if f"`{error.__name__}`" in row.split("|")[1]]
        assert row.split("|")[2].strip() == status_of(error("")).name, error


def flags_of(command):
    """Yield the flags of a command line and of its commands."""
    yield from (flag for option in command.params for flag in option.opts)
    for inner in getattr(command, "commands", {}).values():
        yield from flags_of(inner)


def test_every_flag_exists():
    commands = RUNBOOK.replace("\\\n", " ")  # on one line each
    code = re.findall(r"`([^`\n]+)`|^ {4}(.*)$", commands, re.MULTILINE)
    ours = [text for text in map("".join, code) if not any(other in text for other in OTHERS)]
    named = {flag for text in ours for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    known = set(flags_of(typer.main.get_command(specwhisper_client.cli.main.app)))
    for program in PROGRAMS.values():
        known |= set(flags_of(command_of(program)))
    assert {"--drain-timeout", "--use-ssl", "--server"} <= named
    assert named - known == set()
