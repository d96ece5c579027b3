"""What the laboratory's program refuses: one sentence, and never a traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from experiments.latency.__main__ import app
from experiments.latency.commands.reproduce import commands


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Give the process its own way to end back: a sweep takes SIGTERM for itself."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def refused(*arguments: str) -> str:
    """Give what it says to arguments that it must refuse."""
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code != 0
    assert isinstance(told.exception, SystemExit)
    return told.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stall", "0.5"), "--stall is '0.5': write"),
        (("--stall", "0.5,5,1"), "--stall is '0.5,5,1': write"),
        (("--stall", "5,0.5"), "let nothing through"),
        (("--rtt", "0,nan"), "--rtt is '0,nan': write numbers"),
        (("--rtt-ms", "inf"), "--rtt-ms is 'inf': write numbers"),
        (("--gamma", "0,4"), "--gamma is '0,4': write numbers from 1 to 64"),
        (("--modes", "fast"), "--modes is 'fast': name some of"),
        (("--models", "replay-foo"), "--models is 'replay-foo': say demo, or replay-SHAPE"),
        (("--models", "other"), "--models is 'other': say demo"),
        (("--dtype", "float1"), "--dtype is 'float1': choose one of"),
        (("--jitter-ms", "nan"), "jitter_s is nan"),
        (("--loss", "1"), "a share below 1"),
        (("--network", "moon"), "There is no network 'moon'"),
        (("--network", "proxy", "--loss", "0.1"), "use --network tun"),
    ],
)
def test_a_sweep_of_nonsense_is_refused(arguments, message, tmp_path):
    out = tmp_path / "sweep.jsonl"
    said = refused("sweep", "--out", str(out), *arguments)
    assert message in said
    assert len(said.strip().splitlines()[-1].split(". ")) == 1  # one sentence
    assert not out.exists()


@pytest.mark.parametrize("command", ["show", "plot"])
def test_what_is_no_sweep_is_neither_shown_nor_drawn(command, tmp_path):
    assert "holds no sweep" in refused(command, "--sweep", str(tmp_path / "nothing.jsonl"))


def test_everything_can_be_reproduced(tmp_path):
    told = commands(tmp_path, quick=True, seed=0)
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {arguments[0] for arguments in told.values()} <= names
    assert told["plots"][1:3] == ("--sweep", told["sweep"][2])
