"""Show a running transcription: live on a terminal, elsewhere as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Self

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from specwhisper.printable import blanked
from specwhisper.transcription.formats import one_line
from specwhisper.transcription.speakers import by_speaker
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment
from specwhisper_client.cli.redrawing import OpenText
from specwhisper_client.updates import Update

LONG_S = 60.0  # shorter recordings have no bar
SPEAKER_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
COLORS = ((0.8, "green"), (0.5, "yellow"), (0.0, "red"))  # lowest probability of a word that has this colour


class Display:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, update: Update) -> None:
        pass


class LiveDisplay(Display):
    """Shows final segments, then verified and stable text, then tentative text dim.

    Parameters
    ----------
    colors : whether the words of final segments have the colour of their probability.
    """

    def __init__(self, console: Console, *, timestamps: bool, colors: bool = False) -> None:
        self._timestamps = timestamps
        self._colors = colors
        self._bar = _Bar(console)
        self._open = OpenText(console)

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.__exit__()

    def show(self, update: Update) -> None:
        lines = []
        for segment in update.segments:
            if text := one_line(segment.text):
                times = f"{span(segment)} " if self._timestamps else ""
                shown = colored(segment) if self._colors and segment.words else Text(blanked(text))
                lines.append(Text.assemble((times, "cyan"), shown))
        known = update.verified_text + update.stable_text
        shown = Text.assemble(blanked(known), (blanked(update.tentative_text), "dim"))
        below = [self._bar.progress] if self._bar.advance(update) else []
        self._open.draw(lines, Group(shown[len(shown) - len(shown.plain.lstrip()) :], *below))


class WithProgress(Display):
    def __init__(self, display: Display, console: Console) -> None:
        self._display = display
        self._bar = _Bar(console)

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.progress.stop()
        self._display.__exit__(*error)

    def show(self, update: Update) -> None:
        self._display.show(update)
        if self._bar.advance(update):
            self._bar.progress.start()


class _Bar:
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
            its_speed = f"{speed(at_s, self.progress.tasks[0].elapsed):.1f} times as fast as speech"
            self.progress.update(self._task, completed=at_s, at=clock(at_s), speed=its_speed)
        return True


class BatchBar:
    """Progress of several recordings: transcribed audio, speed and remaining time.

    Parameters
    ----------
    is_shown : whether it is drawn; it always counts.

    Attributes
    ----------
    finished_s : length of the recordings that are complete.
    """

    def __init__(self, console: Console, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self.finished_s = 0.0
        self._durations: list[float | None] = []
        self._at_s: dict[int, float] = {}  # recordings in progress, by number
        self._num_done = 0
        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.fields[progress]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not is_shown,
            speed_estimate_period=300.0,
        )
        self._task = self._progress.add_task("", total=None, progress="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        self._progress.stop()
        yield
        self._progress.start()

    def begin(self, durations: Sequence[float | None]) -> None:
        """Set the known lengths of all recordings."""
        self._durations = list(durations)
        self._draw()

    def advance(self, number: int, update: Update) -> None:
        """Advance a recording to its last final segment."""
        if update.segments:
            self._at_s[number] = update.segments[-1].end_s
        if self._durations and update.duration_s is not None:
            self._durations[number] = update.duration_s
        self._draw()

    def finish(self, number: int, duration_s: float = 0.0) -> None:
        """Count a recording as complete, or without a length as failed."""
        self._at_s.pop(number, None)
        self._num_done += 1
        self.finished_s += duration_s
        if self._durations:
            self._durations[number] = duration_s
        self._draw()

    def _draw(self) -> None:
        at_s = self.finished_s + sum(self._at_s.values())
        total_s = sum(length_s or 0.0 for length_s in self._durations)
        parts = (
            f"{clock(at_s)} of {clock(total_s)}",
            f"{self._num_done} of {len(self._durations)} recordings",
            f"{speed(at_s, self._progress.tasks[0].elapsed):.1f} times as fast as speech",
        )
        self._progress.update(
            self._task,
            completed=at_s,
            total=max(total_s, at_s) or None,
            progress=", ".join(parts),
        )


class PlainDisplay(Display):
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def show(self, update: Update) -> None:
        for segment in update.segments:
            if text := one_line(segment.text):
                print(text, file=self._file, flush=True)


def show_speakers(transcript: Transcription, console: Console) -> None:
    """Print a line for each speaker's part of a segment.

    On a terminal, each speaker has a colour.
    """
    if not console.is_terminal:
        console.file.write(transcript.to_txt())
        return
    colors: dict[str, str] = {}
    for segment in by_speaker(transcript.segments):
        if text := one_line(segment.text):
            color = colors.setdefault(segment.speaker, SPEAKER_COLORS[len(colors) % len(SPEAKER_COLORS)])
            name = f"{blanked(segment.speaker)}: " if segment.speaker else ""
            console.print(Text.assemble((name, f"bold {color}"), (blanked(text), color)))


def color_of(speaker: str) -> str:
    return SPEAKER_COLORS[(ord(speaker[-1]) - ord("A")) % len(SPEAKER_COLORS)]


def colored(segment: Segment) -> Text:
    text = Text()
    for word in segment.words:
        color = next(color for least, color in COLORS if word.confidence >= least)
        text.append(blanked(word.text if text else word.text.lstrip()), color)
    return text


def span(segment: Segment) -> str:
    """Write a segment's times as ``[00:12.34 → 00:15.00]``."""
    return f"[{clock(segment.start_s)} → {clock(segment.end_s)}]"


def speed(audio_s: float, elapsed_s: float | None) -> float:
    return audio_s / elapsed_s if elapsed_s else 0.0


def clock(time_s: float) -> str:
    """Write a time as ``MM:SS.CC``, with hours in front once there are any."""
    minutes, hundredths = divmod(round(time_s * 100), 6_000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:" if hours else "") + f"{minutes:02}:{hundredths / 100:05.2f}"
