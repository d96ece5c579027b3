"""A transcript on its way: on a terminal live, with the draft's text dim; elsewhere as plain lines."""

from __future__ import annotations

from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from client.transcript import Update
from specwhisper.transcription.formats import one_line
from specwhisper.types import Segment

REFRESHES_PER_SECOND = 12


class Display(Protocol):
    """Shows one transcription; a context manager around it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, update: Update) -> None:
        """Show what is new."""


class LiveDisplay:
    """Final segments scroll up; below them stands the open window, verified text plain and draft text dim."""

    def __init__(self, console: Console, *, timestamps: bool) -> None:
        self._console = console
        self._timestamps = timestamps
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, update: Update) -> None:
        """Print the segments that are final and replace the open window's text."""
        for segment in update.segments:
            if text := one_line(segment.text):
                times = f"{span(segment)} " if self._timestamps else ""
                self._console.print(Text.assemble((times, "cyan"), printable(text)))
        verified, draft = printable(update.verified_text), printable(update.draft_text)
        self._live.update(Text.assemble(verified.lstrip(), (draft, "dim")))


class PlainDisplay:
    """One line per final segment, as soon as it is final; nothing that may still change."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, update: Update) -> None:
        """Print the segments that are final."""
        for segment in update.segments:
            if text := one_line(segment.text):
                print(text, file=self._file, flush=True)


class NoDisplay:
    """Shows nothing: the transcript goes elsewhere."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, update: Update) -> None:
        """Ignore the update."""


def span(segment: Segment) -> str:
    """Write a segment's times as ``[00:12.34 → 00:15.00]``."""
    return f"[{clock(segment.start_s)} → {clock(segment.end_s)}]"


def clock(time_s: float) -> str:
    """Write a time as ``MM:SS.CC``, with hours in front once there are any."""
    minutes, hundredths = divmod(round(time_s * 100), 6_000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:" if hours else "") + f"{minutes:02}:{hundredths / 100:05.2f}"


def printable(text: str) -> str:
    """Replace control characters: a server shall not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
