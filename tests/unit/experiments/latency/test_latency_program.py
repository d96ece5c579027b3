"""The program refuses invalid options in one sentence, without a traceback."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.common.replay.error_process import ErrorProcess
from experiments.latency.__main__ import app
from experiments.latency.commands.errors import named_processes
from experiments.latency.commands.reproduce import commands

PAGE = Path(__file__).parents[4] / "docs" / "latency.md"


@pytest.fixture(autouse=True)
def restored_sigterm_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM, which a sweep replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def refused(*arguments: str) -> str:
    """Run the program with arguments that it must refuse; return its output."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    return result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stall", "0.5"), "--stall is '0.5': pass"),
        (("--stall", "0.5,5,1"), "--stall is '0.5,5,1': pass"),
        (("--stall", "5,0.5"), "let nothing through"),
        (("--rtt", "0,nan"), "--rtt is '0,nan': pass numbers"),
        (("--rtt-ms", "inf"), "--rtt-ms is 'inf': pass numbers"),
        (("--gamma", "0,4"), "--gamma is '0,4': pass numbers from 1 to 64"),
        (("--modes", "fast"), "--modes is 'fast': pass a comma-separated list of"),
        (("--models", "replay-foo"), "--models is 'replay-foo': pass demo, or replay- and one of"),
        (("--models", "other"), "--models is 'other': pass demo"),
        (("--dtype", "float1"), "--dtype is 'float1': choose one of"),
        (("--jitter-ms", "nan"), "jitter_s is nan"),
        (("--loss", "1"), "a share below 1"),
        (("--network", "moon"), "There is no network 'moon'"),
        (("--network", "proxy", "--loss", "0.1"), "use --network tun"),
    ],
)
def test_invalid_options_of_a_sweep_are_refused(arguments, message, tmp_path):
    out = tmp_path / "sweep.jsonl"
    output = refused("sweep", "--out", str(out), *arguments)
    assert message in output
    assert len(output.strip().splitlines()[-1].split(". ")) == 1  # one sentence
    assert not out.exists()


@pytest.mark.parametrize("command", ["show", "plot"])
def test_show_and_plot_refuse_a_missing_sweep(command, tmp_path):
    assert "holds no readable sweep" in refused(command, "--sweep", str(tmp_path / "nothing.jsonl"))


def shown_commands():
    """Yield the arguments of the commands above the tables of docs/latency.md."""
    page = PAGE.read_text().replace("\\\n", " ")
    for line in page.splitlines():
        if line.startswith("    python -m experiments.latency ") and "--out" not in line:
            command, *arguments = shlex.split(line.partition("#")[0])[3:]
            is_example = "--quick" in arguments or (command == "simulate" and "--search" not in arguments)
            if command in ("sweep", "together", "simulate", "expect") and not is_example:
                yield [command, *(one for one in arguments if one != "--check")]


def test_reproduce_runs_the_commands_of_the_page(tmp_path):
    parts = commands(tmp_path, quick=False, seed=0).values()
    shown = list(shown_commands())
    assert {command for command, *_ in shown} == {"sweep", "together", "simulate", "expect"}
    for arguments in shown:
        assert any(set(arguments) <= set(part) for part in parts), arguments


def test_reproduce_runs_existing_commands(tmp_path):
    parts = commands(tmp_path, quick=True, seed=0)
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {arguments[0] for arguments in parts.values()} <= names
    assert parts["plots"][1:3] == ("--sweep", parts["sweep"][2])


def test_several_rates_of_errors_have_names_of_their_own():
    found = named_processes("0.7,0.85", "0,0.8", 0.0)
    assert list(found) == ["-0.7-0", "-0.7-0.8", "-0.85-0", "-0.85-0.8"]
    assert found["-0.85-0.8"] == ErrorProcess(0.85, 0.8)
    assert named_processes("0.7", "0.8", 0.0) == {"": ErrorProcess(0.7, 0.8)}
    assert named_processes(None, "0.8", 0.0) == {"": None}
