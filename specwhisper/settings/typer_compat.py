"""Parts of typer that it does not export."""

from __future__ import annotations

import typer

TYPER = "0.29"  # the tested release

# The base class of click's usage errors, or of those of the copy that newer typers bring.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
