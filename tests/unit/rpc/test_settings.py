"""Flags, variables, validation and docs come from the fields of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer

from scripts.configuration import PAGE, PROGRAMS, with_tables
from specwhisper.errors import InvalidRequest
from specwhisper.settings import setting, typer_compat
from specwhisper.settings.command_line import app_of, config_from
from specwhisper.settings.setting import MODEL, PANELS, SERVING, Made, Offered, Setting, Settings, options_of


def together(
    word: Annotated[list[str] | None, Setting(SERVING, "Word; repeat for more.", metavar="WORD")] = None,
) -> tuple[str, ...]:
    return tuple(word or ())


def join(
    first: Annotated[str, Setting(SERVING, "First part of {whole}.", metavar="TEXT")] = "a",
    second: Annotated[str | None, Setting(SERVING, "Second part.", metavar="TEXT")] = None,
) -> str:
    return first + (second or "")


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    wait_s: Annotated[float, Setting(SERVING, "Seconds to wait.", metavar="SECONDS", above=0)] = 2.0
    count: Annotated[int | None, Setting(MODEL, "Items.", metavar="N", min=1, max=3)] = None
    color: Annotated[str, Setting(MODEL, "Color.", metavar="COLOR", choices=("red", "blue"))] = "red"
    loud: Annotated[bool, Setting(SERVING, "Noise.")] = False
    quick: Annotated[bool, Setting(SERVING, "Speed.")] = True
    text: Annotated[str, Made(join, prefix="my", words={"whole": "the text"})] = "a"
    words: Annotated[tuple[str, ...], Made(together)] = ()
    internal: int = 7


def test_defaults_come_from_the_class():
    assert config_from(Example, {}) == Example()


def test_flags_have_the_names_of_fields_without_units():
    flags = {"wait": 0.5, "count": 3, "color": "blue", "loud": True, "quick": False, "my-second": "b"}
    expected = Example(wait_s=0.5, count=3, color="blue", loud=True, quick=False, text="ab")
    assert config_from(Example, flags) == expected


def test_a_list_repeats_its_flag(monkeypatch):
    assert config_from(Example, {"word": ["a b", "c"]}) == Example(words=("a b", "c"))
    assert config_from(Example, {"word": "a b"}) == Example(words=("a b",))
    monkeypatch.setenv("SPECWHISPER_WORD", "a b")
    assert config_from(Example, {}) == Example(words=("a", "b"))
    with pytest.raises(InvalidRequest):
        config_from(Example, {"count": [1, "many"]})


def test_variables_are_read_where_flags_are_absent(monkeypatch):
    monkeypatch.setenv("SPECWHISPER_COUNT", "2")
    monkeypatch.setenv("SPECWHISPER_LOUD", "1")
    monkeypatch.setenv("SPECWHISPER_MY_FIRST", "x")
    assert config_from(Example, {}) == Example(count=2, loud=True, text="x")
    assert config_from(Example, {"count": 1, "my-first": "y"}) == Example(count=1, loud=True, text="y")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"wait_s": 0.0}, "--wait is 0.0 s: it must be more than 0."),
        ({"wait_s": math.nan}, "--wait is nan s: it must be more than 0."),
        ({"count": 0}, "--count is 0: it must be at least 1."),
        ({"count": 4}, "--count is 4: it must be at most 3."),
        ({"color": "green"}, "--color is 'green': choose one of red, blue."),
    ],
)
def test_invalid_values_are_refused_with_flag_value_and_valid_values(values, sentence):
    with pytest.raises(InvalidRequest) as raised:
        Example(**values)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    "flags", [{"count": 4}, {"count": "many"}, {"color": "green"}, {"wait": 0}, {"internal": 8}, {"no": 1}]
)
def test_invalid_flags_are_refused(flags):
    with pytest.raises(InvalidRequest):
        config_from(Example, flags)


def test_help_describes_each_flag():
    assert {option.flag: option.setting.help for option in options_of(Example)}["--my-first"] == (
        "First part of the text."
    )


def test_packages_beside_the_core_add_flags(monkeypatch):
    entry = SimpleNamespace(load=lambda: Made(join, words={"whole": "both"}, after="loud"))
    monkeypatch.setattr(setting, "offers", {"example": {"joined": entry}}.get)

    @dataclass(frozen=True, kw_only=True)
    class Extended(Example):
        extras: Annotated[Mapping[str, Any], Offered("example")] = field(default_factory=dict)

    assert config_from(Extended, {"first": "x", "second": "y"}).extras == {"joined": "xy"}
    flags = [option.flag for option in options_of(Extended) if option.setting.panel == SERVING]
    own = [option.flag for option in options_of(Example) if option.setting.panel == SERVING]
    place = own.index("--loud") + 1
    assert flags == [*own[:place], "--first", "--second", *own[place:]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_setting_is_explained(program):
    options = options_of(PROGRAMS[program])
    assert len({option.flag for option in options}) == len(options)
    for option in options:
        assert option.setting.panel in PANELS
        assert option.setting.help.endswith("."), option.flag
        switch = bool in (
            option.annotation.__origin__,
            *getattr(option.annotation.__origin__, "__args__", ()),
        )
        assert switch == (option.setting.metavar is None), option.flag


def test_the_tables_of_the_page_match_the_settings():
    assert PAGE.read_text() == with_tables(PAGE.read_text()), "run python -m scripts.configuration"


def test_typer_has_the_tested_release():
    """Run this file with a new release, then name it in ``typer_compat.py``."""
    assert typer.__version__.rpartition(".")[0] == typer_compat.TYPER


def test_all_errors_of_a_command_line_have_the_base_class():
    command = typer.main.get_command(app_of(Example, lambda **_: None))
    for words in (["--unknown"], ["--count", "many"]):
        with pytest.raises(typer_compat.UsageError):
            command.main(words, standalone_mode=False)
