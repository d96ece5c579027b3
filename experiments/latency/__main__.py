"""``python -m experiments.latency``: what a round trip costs, and which mechanisms hide it."""

from __future__ import annotations

import typer

from experiments.latency.ablate import ablate
from experiments.latency.costs import parts
from experiments.latency.drift import drift
from experiments.latency.expect import expect
from experiments.latency.page import page
from experiments.latency.sweep import sweep

app = typer.Typer(add_completion=False, no_args_is_help=True)
for command in (sweep, drift, expect, ablate, parts, page):
    app.command()(command)

if __name__ == "__main__":
    app()
