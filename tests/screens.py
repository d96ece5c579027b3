"""A terminal that follows the control sequences which our display writes."""

import re

from rich.cells import cell_len

CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|(\n)|([^\x1b\n]+)")


class Screen:
    """Keeps what a terminal shows."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.lines: list[list[str]] = [[]]
        self._row = self._column = 0

    def write(self, output: str) -> None:
        """Follow text and control sequences."""
        for number, control, newline, text in CONTROL.findall(output):
            if newline:
                self._row, self._column = self._row + 1, 0
                self.lines += [[]] * (self._row == len(self.lines))
            for char in text:
                line = [*self.lines[self._row], *" " * self._column]
                wide = [""] * (cell_len(char) - 1)
                self.lines[self._row] = [
                    *line[: self._column],
                    char,
                    *wide,
                    *line[self._column + cell_len(char) :],
                ]
                self._column += cell_len(char)
                assert self._column <= self._width
            match control:
                case "G":
                    self._column = int(number) - 1
                case "A" | "B":
                    self._row += int(number) * (1 if control == "B" else -1)
                    assert 0 <= self._row < len(self.lines)
                case "K":
                    self.lines[self._row] = self.lines[self._row][: self._column]

    @property
    def shown(self) -> list[str]:
        """The lines, without spaces and empty lines at the end."""
        lines = ["".join(line).rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines
