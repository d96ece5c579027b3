"""A terminal shows text that changes, and what stays the same is not written again."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from specwhisper_client.cli.redrawing import OpenText
from tests.screens import Screen

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
