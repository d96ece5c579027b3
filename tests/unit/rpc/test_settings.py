"""Flags, variables, validation and docs come from the fields of settings."""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from scripts.settings import PAGE, PROGRAMS, page
from specwhisper.errors import InvalidRequest
from specwhisper.settings import command_line, setting
from specwhisper.settings.command_line import app_of, config_from
from specwhisper.settings.setting import MODEL, PANELS, SERVING, Part, Settings, flags_of, offered, part
from specwhisper.validated import ABOVE_0, choice, number, option, switch, text, whole


@dataclass(frozen=True, kw_only=True)
class Joined:
    first: str = text("a", "First part of {whole}.", panel=SERVING)
    second: str | None = text(None, "Second part.", panel=SERVING)

    def joined(self) -> str:
        return self.first + (self.second or "")


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    wait_s: float = number(
        2.0, ABOVE_0, math.inf, "Seconds to wait.", "SECONDS", flags=("wait",), panel=SERVING
    )
    count: int | None = whole(None, 1, 3, "Items.", panel=MODEL)
    color: str = choice("red", "Color.", "COLOR", ("red", "blue"), panel=MODEL)
    loud: bool = switch(False, "Noise.", panel=SERVING)
    quick: bool = switch(True, "Speed.", panel=SERVING)
    text: str = part(Joined, "a", then=Joined.joined, prefix="my", words={"whole": "the text"})
    words: tuple[str, ...] = option(
        (), "Word; repeat for more.", "WORD", flags=("word",), repeats=True, read=tuple, panel=SERVING
    )
    internal: int = 7


def test_flags_have_the_names_of_fields_unless_they_name_another():
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
    ("name", "value", "problem"),
    [
        ("wait_s", 0.0, "is 0.0: it must be above 0."),
        ("wait_s", math.nan, "is nan: it must be above 0."),
        ("count", 0, "is 0: it must lie between 1 and 3."),
        ("color", "green", "is 'green': choose from red, blue."),
    ],
)
def test_invalid_values_are_refused_by_the_name_that_was_written(name, value, problem):
    with pytest.raises(InvalidRequest) as raised:
        Example(**{name: value})
    assert str(raised.value) == f"{name} {problem}"
    flag = name.removesuffix("_s")
    with pytest.raises(InvalidRequest) as raised:
        config_from(Example, {flag: value})
    assert str(raised.value) == f"--{flag} {problem}"


@pytest.mark.parametrize("flags", [{"count": "many"}, {"internal": 8}, {"no": 1}])
def test_invalid_flags_are_refused(flags):
    with pytest.raises(InvalidRequest):
        config_from(Example, flags)


def test_help_describes_each_flag():
    assert {flag.flag: flag.option.help for flag in flags_of(Example)}["--my-first"] == (
        "First part of the text."
    )


@pytest.mark.parametrize("name", [None, "joined"])
@pytest.mark.parametrize("is_installed", [True, False])
def test_packages_beside_the_core_add_flags(is_installed, name, monkeypatch):
    entry = SimpleNamespace(load=lambda: Part(kind=Joined, then=Joined.joined, words={"whole": "both"}))
    offers = {"joined": entry} if is_installed else {}
    monkeypatch.setattr(setting, "offers", {"example": offers}.get)

    @dataclass(frozen=True, kw_only=True)
    class Extended(Example):
        extras: Any = offered("example", name)

    made = {"joined": "xy"} if name is None else "xy"
    flags = {"first": "x", "second": "y"} if is_installed else {}
    assert config_from(Extended, flags).extras == (made if is_installed else Extended().extras)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_setting_is_explained(program):
    flags = flags_of(PROGRAMS[program])
    assert len({flag.flag for flag in flags}) == len(flags)
    for flag in flags:
        assert flag.option.panel in PANELS
        assert flag.option.help.endswith("."), flag.flag
        assert (flag.annotation in (bool, bool | None)) == (not flag.option.metavar), flag.flag


def test_the_page_has_all_settings_and_commands():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.settings"


def test_all_errors_of_a_command_line_have_the_base_class():
    command = typer.main.get_command(app_of(Example, lambda _: None))
    for words in (["--unknown"], ["--count"]):
        with pytest.raises(command_line.UsageError):
            command.main(words, standalone_mode=False)
