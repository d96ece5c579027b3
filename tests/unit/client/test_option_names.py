"""Options of commands: their values, and their names in errors."""

import pytest
import typer
from typer.testing import CliRunner

from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.selection import VadOptions
from specwhisper.settings.command_line import takes
from specwhisper_client.cli.transcribe_command import TranscribeOptions


def read(*arguments: str) -> DecodingOptions:
    """Return the decoding options of a command line."""
    found = []

    @takes(TranscribeOptions)
    def command(context, wanted):
        found.append(wanted.options())

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["a.wav", *arguments])
    if result.exception is not None:
        raise result.exception
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--max-new-tokens 0", "--max-new-tokens is 0: it must be at least 1, or left out."),
        ("--max-initial-timestamp -1", "--max-initial-timestamp is -1"),
        ("--temperature -1", "--temperature is (-1.0,"),
        ("--task sing", "--task is 'sing': choose from transcribe, translate."),
        (
            "--hallucination-silence-threshold 2",
            "--hallucination-silence-threshold needs times of words: add --word-timestamps.",
        ),
        ("--multilingual --language en", "--multilingual is True: the language 'en' contradicts it"),
        ("--vad-speech-pad-ms 0", "--vad-threshold and the like are set: they have no effect"),
        (
            "--vad-filter --vad-threshold 0.4 --vad-neg-threshold 0.6",
            "--vad-neg-threshold is 0.6: it must be at most --vad-threshold",
        ),
        ("--threshold 2", "--threshold is 2.0: it must lie between 0.05 and 0.95."),
        ("--max-line-count 2", "--max-line-count has no effect without --max-line-width"),
    ],
)
def test_names_are_those_of_the_command_line(arguments, sentence):
    with pytest.raises(InvalidRequest) as caught:
        read(*arguments.split())
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", DecodingOptions()),
        ("--greedy", DecodingOptions.greedy()),
        ("--greedy --no-speech-threshold 0.6", DecodingOptions.greedy(no_speech_threshold=0.6)),
        ("--greedy --temperature 0.5", DecodingOptions.greedy(temperatures=0.5)),
        ("--temperature 0.6", DecodingOptions(temperatures=(0.6, 0.8, 1.0))),
        ("--temperature-increment-on-fallback None", DecodingOptions(temperatures=(0.0,))),
        (
            "--vad-filter --vad-speech-pad-ms 0",
            DecodingOptions(vad_filter=True, vad_parameters=VadOptions(speech_pad_ms=0)),
        ),
    ],
)
def test_a_command_line_is_read(arguments, expected):
    assert read(*arguments.split()) == expected
