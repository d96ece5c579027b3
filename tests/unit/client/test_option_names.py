"""Options of commands: their values, and their names in errors."""

import re
import shlex
import sys

import pytest
import typer
from typer.testing import CliRunner

from scripts.settings import PROGRAMS
from specwhisper import __main__, __version__
from specwhisper.options import DecodingOptions, Padding, WordTimes
from specwhisper.selection import VadOptions
from specwhisper.settings.command_line import app_of, takes
from specwhisper_client.cli.main import app
from specwhisper_client.cli.transcribe_command import OpenAICommand, TranscribeOptions


def read(*arguments: str) -> DecodingOptions:
    """Return the decoding options of a command line."""
    found = []

    @takes(TranscribeOptions)
    def command(context, wanted):
        found.append(wanted.options())

    app = typer.Typer(context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
    app.command(cls=OpenAICommand)(command)
    result = CliRunner().invoke(app, ["a.wav", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", DecodingOptions()),
        ("--greedy", DecodingOptions.greedy()),
        ("--greedy --no-speech-threshold 0.6", DecodingOptions.greedy(no_speech_threshold=0.6)),
        ("--temperature 0.6", DecodingOptions(temperatures=(0.6, 0.8, 1.0))),
        (
            "--channel right --audio-track 1 --no-container-times",
            DecodingOptions(channel="right", audio_track=1, container_times=False),
        ),
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


WRONG = r"""
$ target --port x
    --port is 'x': it must be a whole number.
$ SPECWHISPER_PORT=70000 target
    $SPECWHISPER_PORT is 70000: it must lie between 0 and 65535.
$ SPECWHISPER_INSECURE=maybe target
    $SPECWHISPER_INSECURE is 'maybe': it must be 1 or 0.
$ SPECWHISPER_TOKENS_FILE=nofile target
    $SPECWHISPER_TOKENS_FILE: nofile cannot be read: No such file or directory.
$ target --device gpu
    --device is 'gpu': choose cpu, cuda, one GPU such as cuda:1, mps or auto.
$ target --nosuch
    No such option: --nosuch. See specwhisper-target-server --help.
$ target --port
    Option '--port' requires an argument. See specwhisper-target-server --help.
$ target --standby=maybe
    Option '--standby' does not take a value. See specwhisper-target-server --help.
$ specwhisper trasncribe
    No such command 'trasncribe'. Did you mean 'transcribe'? See specwhisper --help.
$ target --max-sessions 2 --max-sessions-per-token 5
    --max-sessions-per-token is 5: it must be at most --max-sessions, which is 2.
$ SPECWHISPER_METRICS_HOST=::1 draft
    $SPECWHISPER_METRICS_HOST has no effect without --metrics-port: set both.
$ draft --target foo
    --target: Address 'foo' is not HOST:PORT: write a host, a colon and a port from 1 to 65535.
$ SPECWHISPER_TARGET_MODEL=base draft --target a:1
    --target has no effect with $SPECWHISPER_TARGET_MODEL: leave one of them out.
$ draft --riva --no-riva
    --riva and --no-riva contradict each other: leave one out.
$ draft --no-riva --strict-model-names
    --strict-model-names is for Riva's service: leave it or --no-riva out.
$ draft --served-model-name ''
    --served-model-name is '': write a name, or leave it out.
$ SPECWHISPER_TOKENS='anna 0123456789abcdef' gateway --host 0.0.0.0
    --host: Listening on '0.0.0.0' would open a server without encryption to the network: add certificates and
    tokens, use 127.0.0.1, or pass --insecure if every client on that network may use it and read its traffic.
$ gateway --api-key of-which-every-user-of-a-machine-could-read
    No such option: --api-key. See specwhisper-gateway --help.
$ gateway --server-client-key /etc/hosts
    --server-client-key: /etc/hosts is not in PEM format: it holds no '-----BEGIN'.
$ wyoming --uri foo
    --uri is 'foo': write tcp://HOST:PORT, unix:///PATH of a socket, or stdio://.
$ specwhisper transcribe a.wav --greedy --temperature 0.5
    --temperature has no effect with --greedy: leave one of them out.
$ specwhisper transcribe a.wav --greedy --top-k 5
    --top-k has no effect at temperature 0: add --temperature.
$ specwhisper transcribe a.wav --hint nofile
    --hint: The hint nofile cannot be read as text: No such file or directory.
$ specwhisper transcribe a.wav --use_ssl
    --use-ssl is an option of specwhisper: put it before transcribe.
$ specwhisper transcribe a.wav --max-initial-timestamp -1
    --max-initial-timestamp is -1: it must lie between 0 and 30 seconds, or be left out.
$ specwhisper transcribe a.wav --hallucination-silence-threshold 2
    --hallucination-silence-threshold needs times of words: add --word-timestamps.
$ specwhisper transcribe a.wav --languages en,fr --language en
    --language and --languages exclude each other: leave one out.
$ specwhisper transcribe a.wav --vad-filter --vad-threshold 0.4 --vad-neg-threshold 0.6
    --vad-neg-threshold is 0.6: it must be at most --vad-threshold, which is 0.4.
$ specwhisper transcribe a.wav --word-timestamps --max-line-count 2
    --max-line-count has no effect without --max-line-width: set both.
$ specwhisper transcribe a.wav --beam-size 5
    Beam search is not offered: a beam reorders its past at every token, which no draft can predict; leave
    beam_size at 1, or sample with a temperature.
$ specwhisper transcribe a.wav --best_of 5
    One text is sampled per window, not several: leave best_of out.
$ specwhisper transcribe a.wav --fp16 False
    fp16 is set at the server: see specwhisper-target-server --help; leave it out here.
$ specwhisper transcribe a.wav --greedy --temperature_increment_on_fallback 0.2
    No window fails without a threshold: set temperature_increment_on_fallback together with
    compression_ratio_threshold or logprob_threshold (OpenAI's are 2.4 and -1).
$ specwhisper transcribe a.wav --print_colors True
    --print-colors has no effect without --word-timestamps: set both.
$ specwhisper transcribe a.wav --word-timestamps --print-colors -f json
    --print-colors is for the text of one recording after the other: leave --batch-size and other formats
    out.
$ specwhisper transcribe a.wav -f unsure
    unsure needs words of a whole recording: add --word-timestamps.
$ specwhisper transcribe a.wav -f all
    Several formats need a folder: add --output-dir FOLDER.
$ specwhisper transcribe a.wav --mode one-process
    --mode is 'one-process': choose from target-only, sync, pipelined, full.
$ specwhisper listen --diarize nowhere
    --diarize: nowhere holds no model for speaker segmentation: it needs two of sherpa-onnx, one for
    speaker segmentation and one for speaker embeddings.
$ specwhisper top --once
    No server is named: add --metrics HOST:PORT,... or --locator HOST:PORT,...
$ specwhisper top --locator foo
    --locator: Address 'foo' is not HOST:PORT: write a host, a colon and a port from 1 to 65535.
$ specwhisper transcribe a.wav --word_timestamps maybe
    --word-timestamps is 'maybe': write True or False, or the name of a file.
$ specwhisper transcribe a.wav --unsure-below 0.3
    --unsure-below has no effect without the format unsure: add -f unsure.
$ specwhisper transcribe a.wav --diarize f --speaker-threshold 9
    --speaker-threshold is 9: it must be above 0 and below 2.
$ specwhisper transcribe a.wav -f diarized_json
    diarized_json needs speakers: add --diarize FOLDER.
$ specwhisper evaluate --plot nowhere/plot.png
    --plot is nowhere/plot.png: make its folder first.
$ specwhisper evaluate --plot plot.pdf
    --plot is plot.pdf: write a .png or .svg file.
$ specwhisper evaluate
    Name either a folder or a dataset: --folder FOLDER or --dataset NAME.
"""  # a command line, and the sentence about it


@pytest.mark.parametrize(
    "case", WRONG.removeprefix("\n$ ").split("\n$ "), ids=lambda case: case.splitlines()[0]
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(case, monkeypatch):
    line, *sentence = map(str.strip, case.splitlines())
    words = shlex.split(line)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("="))
    program, kind = words[0], "error"
    command = app
    if program != "specwhisper":
        kind, settings = next(each for each in PROGRAMS.items() if program in each[0])
        command = app_of(settings, lambda _: None, kind)
    result = CliRunner().invoke(command, words[1:], prog_name=program if kind == "error" else kind)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{kind}: {' '.join(sentence)}\n")


COMMANDS = [*(f"specwhisper {name}" for name in ("transcribe", "models get", "health", "serve")), *PROGRAMS]


def run(line: str, flag: str) -> str:
    program, *words = line.split()
    command = app if program == "specwhisper" else app_of(PROGRAMS[program], lambda _: None, program)
    result = CliRunner().invoke(command, [*words, flag], env={"TERMINAL_WIDTH": "80"})
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize("line", COMMANDS)
def test_help_fits_a_terminal_and_has_no_types_of_python(line):
    shown = run(line, "--help")
    assert "--help" in shown and "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.findall("<.*?>", shown)


@pytest.mark.parametrize("program", ["specwhisper", *PROGRAMS])
def test_every_program_has_a_version_flag(program):
    assert run(program, "--version") == f"specwhisper {__version__}\n"


def test_what_fails_at_run_time_has_status_1(unused_tcp_port):
    result = CliRunner().invoke(app, ["health", "--server", f"127.0.0.1:{unused_tcp_port}"])
    assert result.exit_code == 1


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(monkeypatch, capsys):
    class Interrupting:
        def find_spec(self, *_):
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "specwhisper_client.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting()])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "")
