"""The page of all commands is that of the current ones."""

from __future__ import annotations

from scripts.command_line import PAGE, with_commands


def test_the_page_of_all_commands_is_current():
    page = PAGE.read_text()
    assert page == with_commands(page), "run python -m scripts.command_line"
