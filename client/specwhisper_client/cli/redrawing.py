"""Changing text at the end of a terminal: only differences are written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.segment import ControlType
from rich.style import Style
from rich.text import Text

Line = list[tuple[str, Style | None]]  # characters
ERASE_REST = Control((ControlType.ERASE_IN_LINE, 0))


class OpenText:
    """Lines that may change at the end of a terminal, after lines that stay.

    Unchanged text isn't written again, so that eyes and screen readers find it in the same place.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Line] = []  # those that may change
        self._row = 0  # the cursor's, counted from the first of these lines

    def __enter__(self) -> Self:
        self._console.show_cursor(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._show([])
        self._console.show_cursor(True)

    def draw(self, staying: Sequence[RenderableType], changing: RenderableType) -> None:
        """Show lines that stay from now on, and below them the lines that may still change."""
        stays = self._rendered(Group(*staying)) if staying else []
        # A line that has scrolled out of sight cannot change.
        changes = self._rendered(changing)[1 - self._console.height :]
        self._show([*stays, *changes])
        self._lines = changes
        self._row -= len(stays)

    def _rendered(self, content: RenderableType) -> list[Line]:
        lines = self._console.render_lines(content, pad=False)
        return [[(char, part.style) for part in line for char in part.text] for line in lines]

    def _show(self, lines: list[Line]) -> None:
        if lines == self._lines:
            return
        with self._console:  # written at once
            for row in range(max(len(lines), len(self._lines))):
                before = self._lines[row] if row < len(self._lines) else []
                after = lines[row] if row < len(lines) else []
                if row and row >= len(self._lines):
                    self._go_to(row - 1, 0)
                    self._console.line()
                    self._row = row
                self._rewrite(row, before, after)
            self._go_to(max(0, len(lines) - 1), _width(lines[-1]) if lines else 0)
        self._lines = lines

    def _rewrite(self, row: int, before: Line, after: Line) -> None:
        if before == after:
            return
        pairs = enumerate(zip(before, after, strict=False))
        start = next((i for i, (old, new) in pairs if old != new), len(before))
        self._go_to(row, _width(after[:start]))
        self._console.control(ERASE_REST)
        self._console.print(Text.assemble(*_parts(after[start:])), end="", soft_wrap=True)

    def _go_to(self, row: int, column: int) -> None:
        self._console.control(Control.move_to_column(column, row - self._row))
        self._row = row


def _width(line: Line) -> int:
    return cell_len("".join(char for char, _ in line))


def _parts(line: Line) -> list[tuple[str, Style | str]]:
    parts = groupby(line, key=itemgetter(1))
    return [("".join(char for char, _ in chars), style or "") for style, chars in parts]
