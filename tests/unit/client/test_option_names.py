"""Options in errors, by the names of the command line."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from specwhisper.errors import InvalidRequest, TargetUnavailable
from specwhisper.options import DecodingOptions, options_from
from specwhisper_client.cli import grouped_options
from specwhisper_client.cli.arguments import NAMES, described
from specwhisper_client.cli.fallback_options import Fallback
from specwhisper_client.cli.grouped_options import OptionsOfExtra, takes

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens is 0: it must be at least 1, or left out."),
        ({"max_initial_timestamp_s": -1}, "--max-initial-timestamp is -1"),
        (
            {"hallucination_silence_threshold": 2},
            "--hallucination-silence-threshold needs times of words: add --word-timestamps.",
        ),
        (
            {"multilingual": True, "language": "en"},
            "--multilingual is True: the language 'en' contradicts it",
        ),
        (
            {"vad_filter": True, "vad_parameters": {"threshold": 0.4, "neg_threshold": 0.6}},
            "--vad-neg-threshold is 0.6: it must be at most threshold",
        ),
    ],
)
def test_names_are_those_of_the_command_line(options, sentence):
    with pytest.raises(InvalidRequest) as caught:
        options_from({}, options)
    assert described(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], DecodingOptions()),
        (["--greedy"], DecodingOptions.greedy()),
        (["--greedy", "--no-speech-threshold", "0.6"], DecodingOptions.greedy(no_speech_threshold=0.6)),
        (["--temperature-increment-on-fallback", "None"], DecodingOptions(temperatures=(0.0,))),
    ],
)
def test_greedy_leaves_only_what_the_command_line_has(arguments, expected):
    @takes(Fallback)
    def command(context, wanted):
        context.obj.append(wanted.options())

    app, read = typer.Typer(), []
    app.command()(command)
    assert CliRunner().invoke(app, arguments, obj=read, catch_exceptions=False).exit_code == 0
    assert read == [expected]


@pytest.mark.parametrize("is_installed", [True, False])
def test_an_extra_adds_its_options(is_installed, monkeypatch):
    def doubled(number: Annotated[int, typer.Option()] = 1) -> int:
        return 2 * number

    entries = {"number": SimpleNamespace(load=lambda: doubled)} if is_installed else {}
    monkeypatch.setattr(grouped_options, "offers", {"example": entries}.get)

    @dataclass(frozen=True, kw_only=True)
    class Options:
        number: Annotated[Callable[[], int], OptionsOfExtra("example", "number")] = lambda: 0
        other: Annotated[bool, typer.Option("--other")] = False

    @takes(Options)
    def command(context, wanted):
        print(wanted.number(), wanted.other)

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["--other"]).stdout == ("2 True\n" if is_installed else "0 True\n")
    assert (CliRunner().invoke(app, ["--number", "4"]).stdout == "8 False\n") is is_installed


def test_other_texts_stay():
    assert described(InvalidRequest("No option is here.")) == "No option is here."
    assert described(TargetUnavailable("max_new_tokens")) == "max_new_tokens"


def test_every_name_is_on_the_page_of_the_command_line():
    words = set(re.findall(r"--[a-z-]+", PAGE.read_text()))
    assert {flag.split()[0] for flag in NAMES.values()} <= words
