"""``python -m experiments.capacity PROGRAM``: what a target, a draft server and one process carry."""

from __future__ import annotations

import sys

import typer
from transformers.utils import logging

from experiments.capacity.batching import batching
from experiments.capacity.crowd import crowd
from experiments.capacity.draft_server import draft_server
from experiments.capacity.ladder import ladder
from experiments.capacity.memory import memory
from experiments.capacity.sizing import sizing
from experiments.capacity.steps import steps
from experiments.capacity.threads import threads
from specwhisper.errors import SpecWhisperError

PROGRAMS = (ladder, crowd, steps, threads, batching, memory, sizing, draft_server)

app = typer.Typer(help="Measure what a target, a draft server and one process carry.", no_args_is_help=True)
for program in PROGRAMS:
    app.command(program.__name__.replace("_", "-"))(program)

if __name__ == "__main__":
    logging.set_verbosity_error()
    try:
        app()
    except SpecWhisperError as error:
        sys.exit(f"experiments.capacity: {error}")
