"""``python -m experiments.latency``: what a round trip costs, and which mechanisms hide it."""

from __future__ import annotations

import typer

from experiments.latency.commands.ablate import ablate
from experiments.latency.commands.calibrate import calibrate
from experiments.latency.commands.drift import drift
from experiments.latency.commands.expect import expect
from experiments.latency.commands.page import page
from experiments.latency.commands.parts import parts
from experiments.latency.commands.simulate import simulate
from experiments.latency.commands.sweep import show, sweep

app = typer.Typer(add_completion=False, no_args_is_help=True)
for command in (sweep, show, drift, expect, simulate, ablate, calibrate, parts, page):
    app.command()(command)

if __name__ == "__main__":
    app()
