"""``python -m experiments.capacity PROGRAM``: capacity of a target, a draft server and one process."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

PROGRAMS = ("ladder", "crowd", "steps", "memory", "sizing", "draft-server")

app = typer.Typer(no_args_is_help=True)


@app.callback()
def capacity() -> None:
    """Measure what a target, a draft server and one process carry."""


def main() -> None:
    """Run a program; only that one is imported, since one of them measures its own memory."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    for name in [asked] if asked in PROGRAMS else PROGRAMS:
        attribute = name.replace("-", "_")
        app.command(name)(getattr(import_module(f"experiments.capacity.{attribute}"), attribute))
    app()


if __name__ == "__main__":
    main()
