"""Show a running transcription, live on a terminal and elsewhere as lines, and its statistics at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import IO, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import ControlType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from specwhisper.printable import blanked
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.formats import one_line
from specwhisper.transcription.speakers import by_speaker
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Segment
from specwhisper_client.updates import Update

Line = list[tuple[str, Style | None]]  # characters
ERASE_REST = Control((ControlType.ERASE_IN_LINE, 0))
LONG_S = 60.0  # shorter recordings have no bar
SPEAKER_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
COLORS = ((0.8, "green"), (0.5, "yellow"), (0.0, "red"))  # lowest probability of a word that has this colour


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


class Bar(Progress):
    """Progress of recordings: transcribed audio, speed and remaining time.

    Parameters
    ----------
    is_shown : whether it is drawn; it always counts.

    Attributes
    ----------
    durations : length of each recording, as far as known.
    finished_s : length of the recordings that are complete.
    """

    def __init__(self, console: Console, *, is_shown: bool = True) -> None:
        columns = BarColumn(), TextColumn("{task.fields[progress]}"), TimeRemainingColumn()
        super().__init__(
            *columns, console=console, transient=True, disable=not is_shown, speed_estimate_period=300.0
        )
        self.durations: list[float | None] = [None]
        self.finished_s = 0.0
        self._at_s: dict[int, float] = {}  # recordings in progress, by number
        self._num_done = 0
        self._all = self.add_task("", total=None, progress="")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        self.stop()
        yield
        self.start()

    def follow(self, number: int, update: Update) -> None:
        """Advance a recording to its last final segment."""
        if update.segments:
            self._at_s[number] = update.segments[-1].end_s
        if update.duration_s is not None:
            self.durations[number] = update.duration_s
        self.draw()

    def finish(self, number: int, duration_s: float = 0.0) -> None:
        """Count a recording as complete, or without a length as failed."""
        self._at_s.pop(number, None)
        self._num_done += 1
        self.finished_s += duration_s
        self.durations[number] = duration_s
        self.draw()

    def draw(self) -> None:
        at_s = self.finished_s + sum(self._at_s.values())
        total_s = sum(length_s or 0.0 for length_s in self.durations)
        num_all = len(self.durations)
        parts = (
            f"{clock(at_s)} of {clock(total_s)}",
            *([f"{self._num_done} of {num_all} recordings"] if num_all > 1 else []),
            f"{speed(at_s, self.tasks[0].elapsed):.1f} times as fast as speech",
        )
        total = max(total_s, at_s) or None
        self.update(self._all, completed=at_s, total=total, progress=", ".join(parts))


class Display:
    """Prints final text as lines; the bar shows how far a long recording is.

    Parameters
    ----------
    file : where text is printed; ``None`` for nowhere.
    bar : ``None`` for no bar.
    """

    def __init__(self, file: IO[str] | None = None, bar: Bar | None = None) -> None:
        self._file = file
        self._bar = bar

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, update: Update) -> None:
        for segment in update.segments:
            if self._file is not None and (text := one_line(segment.text)):
                name = f"{segment.speaker}: " if segment.speaker else ""
                print(f"{name}{text}", file=self._file, flush=True)
        if self._bar is not None and is_long(update):
            self._bar.follow(0, update)
            self._bar.start()


class LiveDisplay(OpenText):
    """Shows final segments, then verified and stable text, then tentative text dim.

    Parameters
    ----------
    colors : whether the words of final segments have the colour of their probability.
    """

    def __init__(self, console: Console, *, timestamps: bool, colors: bool = False) -> None:
        super().__init__(console)
        self._timestamps = timestamps
        self._colors = colors
        self._below = Bar(console)

    def show(self, update: Update) -> None:
        lines = []
        for segment in update.segments:
            if text := one_line(segment.text):
                times = f"{span(segment)} " if self._timestamps else ""
                shown = colored(segment) if self._colors and segment.words else Text(blanked(text))
                lines.append(Text.assemble((times, "cyan"), shown))
        known = update.verified_text + update.stable_text
        shown = Text.assemble(blanked(known), (blanked(update.tentative_text), "dim"))
        self._below.follow(0, update)
        below = [self._below] if is_long(update) else []
        self.draw(lines, Group(shown[len(shown) - len(shown.plain.lstrip()) :], *below))


def is_long(update: Update) -> bool:
    """Return whether a recording is long enough for a bar."""
    return (update.duration_s or 0.0) >= LONG_S


def show_speakers(transcript: Transcription, console: Console) -> None:
    """Print a line for each speaker's part of a segment.

    On a terminal, each speaker has a colour.
    """
    if not console.is_terminal:
        console.file.write(transcript.to_txt())
        return
    for segment in by_speaker(transcript.segments):
        if text := one_line(segment.text):
            color = color_of(segment.speaker)
            name = f"{blanked(segment.speaker)}: " if segment.speaker else ""
            console.print(Text.assemble((name, f"bold {color}"), (blanked(text), color)))


def color_of(speaker: str) -> str:
    return SPEAKER_COLORS[(ord(speaker[-1:] or "A") - ord("A")) % len(SPEAKER_COLORS)]


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


def transcript_table(transcript: Transcription) -> Table:
    counts = transcript.stats or SpeculationStatistics()
    blocks = f"{counts.num_blocks} sent"
    if counts.min_round_trip_ns:
        blocks += f", the fastest answer took {counts.min_round_trip_ns / 1e6:.2f} ms"
    wrote = {"model": pair_of(transcript.model)} if transcript.model.target else {}  # none without speech
    rows = {
        **wrote,
        "audio": f"{transcript.duration_s:.2f} s in {transcript.elapsed_s:.2f} s, "
        f"real-time factor {transcript.real_time_factor:.3f}",
        **counts.described(),
        "blocks": blocks,
    }
    if counts.draft_note:
        rows["draft"] = counts.draft_note
    elif transcript.model.draft and not (counts.num_drafted or counts.num_hinted):
        rows["draft"] = f"no candidates: it knows no '{transcript.language}', or came too late"
    elif counts.gamma:
        rows["blocks"] += f", now of {counts.gamma} token{'s' * (counts.gamma > 1)}"
    if counts.num_draft_steps and counts.num_forwards:
        rows["times"] = (
            f"draft step {counts.draft_ns / counts.num_draft_steps / 1e6:.1f} ms, "
            f"forward pass {counts.forward_ns / counts.num_forwards / 1e6:.1f} ms"
        )
        if counts.num_answers and counts.min_round_trip_ns:  # else the target is in the same process
            rows["times"] += f", on the way {counts.network_ns / counts.num_answers / 1e6:.1f} ms"
    return facts_table(rows)


def pair_of(model: ModelInfo) -> str:
    blocks = f" in blocks of {model.gamma}" if model.gamma else ""
    draft = f", drafted by {model.draft}{blocks}" if model.draft else ""
    return f"{model.target}{draft} ({model.mode})"


def facts_table(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, value in rows.items():
        table.add_row(Text(label, "dim"), Text(blanked(value)))
    return table
