"""The live display of the terminal client, which writes again only what changes."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from specwhisper.types import Segment, Word
from specwhisper_client.cli.display import Bar, Display, LiveDisplay, OpenText, clock
from specwhisper_client.cli.listening import open_line
from specwhisper_client.updates import Update
from tests.screens import Screen


@pytest.mark.parametrize(
    ("time_s", "text"), [(0, "00:00.00"), (59.999, "01:00.00"), (3_661.25, "1:01:01.25")]
)
def test_clock_formats_times(time_s, text):
    assert clock(time_s) == text


def drawn(update: Update, *, colors: bool = False) -> str:
    """Return the characters that the terminal receives for one update."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system="standard")
    with LiveDisplay(console, timestamps=True, colors=colors) as display:
        display.show(update)
    return file.getvalue()


def test_words_have_the_colour_of_their_probability():
    words = (Word(0, 1, " Surely", 0.9), Word(1, 2, " \x1b[2Jmaybe", 0.6), Word(2, 3, " not.", 0.1))
    text = drawn(Update((Segment(0, 3, (), " Surely maybe not.", words=words),)), colors=True)
    assert "\x1b[32mSurely\x1b[0m\x1b[33m  [2Jmaybe\x1b[0m\x1b[31m not.\x1b[0m" in text
    assert "Plain." in drawn(Update((Segment(0, 3, (), " Plain."),)), colors=True)


def test_only_tentative_text_is_dim():
    assert "Hello all\x1b[2m their bye\x1b[0m" in drawn(Update((), " Hello", " all", " their bye"))


def test_control_characters_and_markup_do_not_reach_the_terminal():
    assert "[red]alert[/red]" in drawn(Update((Segment(0, 1, (), "[red]alert[/red]"),)))
    assert "\x1b[2J" not in drawn(Update((), " Hello \x1b[2J", " all\x1b[2J", " their\x1b[2J bye"))


@pytest.mark.parametrize(("duration_s", "progress"), [(120.0, "01:00.00 of 02:00.00"), (None, ""), (5.0, "")])
def test_only_a_recording_that_is_known_to_be_long_shows_its_progress(duration_s, progress):
    update, file = Update((Segment(30, 60, (), "One."),), duration_s=duration_s), io.StringIO()
    with Display(bar=Bar(Console(file=file, force_terminal=True, width=100))) as display:
        display.show(update)
    assert progress in file.getvalue()
    assert progress in drawn(update)
    assert bool(progress) == bool(file.getvalue()) == (" of " in drawn(update))


@pytest.mark.parametrize("is_unverified", [False, True])
def test_an_outage_is_named_beside_the_text_that_no_target_has_seen(is_unverified):
    update = Update((), "And so", " my", " fellow", is_unverified=is_unverified, settled_text="And")
    shown = open_line(update, 1.2, is_speech=True).plain
    assert shown == "[00:01.20 → ●       ] And so my fellow" + " (no target answers)" * is_unverified


WIDTH = 12


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=WIDTH, height=100, color_system="standard"), file


WORDS = st.lists(st.sampled_from(["one", "two", "three", "東京", "a"]), max_size=9).map(" ".join)
DRAWINGS = st.lists(st.tuples(st.lists(WORDS, max_size=2), WORDS, WORDS), max_size=6)


@given(DRAWINGS)
def test_a_terminal_shows_what_was_drawn_last(drawings):
    (console, file), (plain, expected), screen = terminal(), terminal(), Screen(WIDTH)
    with OpenText(console) as text:
        for staying, known, tentative in drawings:
            changing = Text.assemble(known, (tentative, "dim"))
            text.draw([Text(line) for line in staying], changing)
            screen.write(file.getvalue())
            file.seek(0)
            file.truncate()
            for line in staying:
                plain.print(Text(line))
            now = Screen(WIDTH)
            with plain.capture() as capture:
                plain.print(changing, end="")
            now.write(expected.getvalue() + capture.get())
            assert screen.shown == now.shown
    screen.write(file.getvalue())
    now = Screen(WIDTH)
    now.write(expected.getvalue())
    assert screen.shown == now.shown


def test_only_the_end_that_changes_is_written():
    console, file = terminal()
    with OpenText(console) as text:
        text.draw([], Text.assemble("one ", ("two", "dim")))
        file.seek(0)
        file.truncate()
        text.draw([], Text.assemble("one ", ("two thr", "dim")))
        text.draw([], Text.assemble("one ", ("two thr", "dim")))
    written = re.sub(r"\x1b\[\??\d*[A-Za-z]", "", file.getvalue())
    assert written == " thr"
