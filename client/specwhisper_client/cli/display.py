"""Show a running transcription: live on a terminal, elsewhere as lines."""

from __future__ import annotations

from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from specwhisper.transcription.subtitles import one_line
from specwhisper.types import Segment
from specwhisper.wire.printable import blanked
from specwhisper_client.updates import Update

REFRESHES_PER_SECOND = 12
LONG_S = 60.0  # a shorter recording has no bar


class Display(Protocol):
    """Shows one transcription; a context manager around it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, update: Update) -> None:
        """Show an update."""


class LiveDisplay:
    """Shows final segments, verified text, and draft text dim."""

    def __init__(self, console: Console, *, timestamps: bool) -> None:
        self._console = console
        self._timestamps = timestamps
        self._bar = _Bar(console)
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
                self._console.print(Text.assemble((times, "cyan"), blanked(text)))
        verified, draft = blanked(update.verified_text), blanked(update.draft_text)
        open_window = Text.assemble(verified.lstrip(), (draft, "dim"))
        below = [self._bar.progress] if self._bar.advance(update) else []
        self._live.update(Group(open_window, *below))


class WithProgress:
    """Adds the progress of a long recording to another display."""

    def __init__(self, display: Display, console: Console) -> None:
        self._display = display
        self._bar = _Bar(console)

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.progress.stop()
        self._display.__exit__(kind, error, trace)

    def show(self, update: Update) -> None:
        """Pass the update on."""
        self._display.show(update)
        if self._bar.advance(update):
            self._bar.progress.start()


class _Bar:
    """Progress of a long recording: share, speed and remaining time."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            BarColumn(),
            TextColumn("{task.fields[at]} of {task.fields[length]}, {task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def advance(self, update: Update) -> bool:
        """Advance to the last final segment; return whether there is progress to show."""
        if update.duration_s is None or update.duration_s < LONG_S:
            return False
        if self._task is None:
            length = clock(update.duration_s)
            self._task = self.progress.add_task(
                "", total=update.duration_s, at=clock(0), length=length, speed=""
            )
        if update.segments:
            at_s = update.segments[-1].end_s
            elapsed_s = self.progress.tasks[0].elapsed
            speed = f"{at_s / elapsed_s:.1f} times as fast as speech" if elapsed_s else ""
            self.progress.update(self._task, completed=at_s, at=clock(at_s), speed=speed)
        return True


class PlainDisplay:
    """Prints one line per final segment."""

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
    """Shows nothing, since the text is written elsewhere."""

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
