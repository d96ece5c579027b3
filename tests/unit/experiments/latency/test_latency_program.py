"""The program refuses invalid options in one sentence, without a traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from experiments.latency.__main__ import app


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
        (("--rtt-ms", "0,nan"), "--rtt-ms is '0,nan': pass numbers"),
        (("--gamma", "0,4"), "--gamma is '0,4': pass numbers from 1 to 64"),
        (("--modes", "fast"), "--modes is 'fast': pass some of"),
        (("--conditions", "loud"), "--conditions is 'loud': pass some of clean"),
    ],
)
def test_invalid_options_of_a_sweep_are_refused(arguments, message, tmp_path):
    out = tmp_path / "grid.jsonl"
    output = refused("sweep", "--out", str(out), *arguments)
    assert message in output
    assert len(output.strip().splitlines()[-1].split(". ")) == 1  # one sentence
    assert not out.exists()


def test_show_refuses_a_missing_grid(tmp_path):
    assert "holds no readable grid" in refused("show", "--grid", str(tmp_path / "nothing.jsonl"))
