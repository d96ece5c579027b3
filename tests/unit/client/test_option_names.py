"""Options of commands: their values, and their names in errors."""

import pytest
import typer
from typer.testing import CliRunner

from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions, Padding, WordTimes
from specwhisper.selection import VadOptions
from specwhisper.settings.command_line import takes
from specwhisper_client.cli.main import app
from specwhisper_client.cli.openai_flags import OpenAICommand
from specwhisper_client.cli.transcribe_command import TranscribeOptions


def read(*arguments: str) -> DecodingOptions:
    """Return the decoding options of a command line."""
    found = []

    @takes(TranscribeOptions)
    def command(context, wanted):
        found.append(wanted.options())

    app = typer.Typer(context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
    app.command(cls=OpenAICommand)(command)
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


def test_options_are_named_as_whispers():
    options = (
        "--temperature 0.2 --temperature_increment_on_fallback 0.4 --logprob_threshold -1 "
        "--compression-ratio-threshold 2.4 --compression-ratio-of text --no_speech_threshold 0.6 "
        "--word_timestamps --word-times model --condition-on-previous-text --seed 7 --top-k 40 --top-p 0.9 "
        "--initial_prompt Ray --carry-initial-prompt --hotwords gamma --hallucination_silence_threshold 1.5 "
        "--padding zero --max-initial-timestamp 0.5 --max_new_tokens 99"
    )
    assert read(*options.split()) == DecodingOptions.greedy(
        temperatures=(0.2, 0.6, 1.0),
        logprob_threshold=-1.0,
        compression_ratio_threshold=2.4,
        no_speech_threshold=0.6,
        word_timestamps=True,
        word_times=WordTimes.MODEL,
        condition_on_previous_text=True,
        seed=7,
        top_k=40,
        top_p=0.9,
        initial_prompt="Ray",
        carry_initial_prompt=True,
        hotwords="gamma",
        hallucination_silence_threshold=1.5,
        padding=Padding.ZERO,
        max_initial_timestamp_s=0.5,
        max_new_tokens=99,
    )


def test_booleans_and_none_are_read_as_openais():
    options = [
        *"--word_timestamps True --condition_on_previous_text False --carry_initial_prompt=False".split(),
        *"--temperature_increment_on_fallback None --logprob_threshold=None --beam_size None".split(),
        *"--patience None --best_of 1 --suppress_tokens -1 --fp16 None --language None".split(),
        *"--no-timestamps True --acceptance-threshold 0.5".split(),
        *("--initial_prompt", "--fp16", "--hotwords", "--model"),  # texts, whatever they look like
    ]
    assert read(*options) == DecodingOptions(
        temperatures=(0.0,),
        logprob_threshold=None,
        word_timestamps=True,
        timestamps=False,
        initial_prompt="--fp16",
        hotwords="--model",
        acceptance_threshold=0.5,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--beam-size 5", "beam search"),
        ("--beam_size 0", "beam search"),
        ("--patience 2.0", "beam search"),
        ("--best_of 5", "one text is sampled"),
        ("--fp16 False", "fp16 is set at the server"),
        ("--clip_timestamps 0,10", "clip_timestamps is not offered"),
        ("--greedy --temperature_increment_on_fallback 0.2", "no window fails without a threshold"),
        ("--max_line_width 20", "add --word-timestamps"),
        ("--print_colors True", "add --word-timestamps"),
        ("-f unsure", "add --word-timestamps"),
        ("-f docx", "--output-format is 'docx': choose from txt, json"),
        ("--mode one-process", "--mode is 'one-process': choose from target-only"),  # no server has it
    ],
)
def test_what_cannot_be_is_one_sentence(options, sentence):
    result = CliRunner().invoke(app, ["transcribe", "talk.mp3", *options.split()])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert sentence.lower() in result.stderr.lower()
