"""``python -m experiments.latency``: what a round trip costs, measured and simulated."""

from __future__ import annotations

import typer

from experiments.latency.expect import expect
from experiments.latency.page import page
from experiments.latency.sweep import sweep

app = typer.Typer(add_completion=False, no_args_is_help=True)
for command in (sweep, expect, page):
    app.command()(command)

if __name__ == "__main__":
    app()
