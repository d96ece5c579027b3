"""Output and exit status of the command line."""

import json
import re

import numpy as np
import pytest
import soundfile

from specwhisper import __version__
from specwhisper.errors import ServerFull
from specwhisper.options import CompressionRatio, DecodingOptions, Padding, WordTimes
from specwhisper.types import Mode
from specwhisper.wire.codec.decoding import decoding_options_from_proto
from specwhisper_client.cli.models_command import show_server
from specwhisper_client.cli.output import OutputFormat
from tests.nightly import mostly_nightly
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.terminals import Streams, run_cli

TEXT = "Hello there.\nBye.\n"
STATISTICS = [
    "large, drafted by tiny in blocks of 5 (full)",
    "real-time factor",
    "10 in 4 forward passes, 2.50 tokens per pass",
    "75.0% of 8 verified candidates",
    "1 of 10 tokens",
    "3 blocks, the fastest took 0.16 ms",
]


@pytest.fixture
def streams():
    return Streams()


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "first.wav", tmp_path / "second.wav"]
    for path in paths:
        soundfile.write(path, np.zeros(40_000, np.int16), 16_000)
    return paths


async def test_without_a_terminal_only_text_goes_to_standard_output(files, streams):
    server = ScriptedTranscription()
    async with serving(server) as address:
        assert await streams.run(files[:1], address)
    assert streams.out == TEXT
    assert not server.config.interim_results
    for statistic in STATISTICS:
        assert statistic in streams.err


async def test_on_a_terminal_segments_have_times_and_the_draft_is_dim(files):
    terminal = Streams(is_terminal=True)
    server = ScriptedTranscription()
    async with serving(server) as address:
        assert await terminal.run(files[:1], address)
    assert server.config.interim_results
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.out)
    assert "[00:00.00 → 00:01.50] Hello there." in plain
    assert "[00:01.50 → 00:02.25] Bye." in plain
    assert "real-time factor" in terminal.err


async def test_without_timestamps_no_times_are_shown(files):
    terminal = Streams(is_terminal=True)
    async with serving(ScriptedTranscription()) as address:
        assert await terminal.run(files[:1], address, options=DecodingOptions.greedy(timestamps=False))
    assert "Hello there." in terminal.out
    assert "→" not in terminal.out


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_quiet_prints_the_text_and_nothing_else(files, is_terminal):
    streams = Streams(is_terminal)
    async with serving(ScriptedTranscription()) as address:
        assert await streams.run(files, address, quiet=True)
    assert (streams.out, streams.err) == (TEXT * 2, "")


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_json_on_standard_output_is_all_there_is(files, is_terminal):
    streams = Streams(is_terminal)
    async with serving(ScriptedTranscription()) as address:
        assert await streams.run(files[:1], address, formats=[OutputFormat.JSON])
    document = json.loads(streams.out)
    assert document["text"] == "Hello there. Bye."
    assert document["audio"] == str(files[0])


async def test_files_are_written_to_a_folder(files, streams, tmp_path):
    folder = tmp_path / "new" / "folder"
    async with serving(ScriptedTranscription()) as address:
        assert await streams.run(files, address, output_dir=folder)
        assert await streams.run(files, address, output_dir=folder, formats=[OutputFormat.JSON])
    assert sorted(path.name for path in folder.iterdir()) == [
        "first.json",
        "first.txt",
        "second.json",
        "second.txt",
    ]
    assert (folder / "second.txt").read_text() == TEXT
    assert streams.out == ""


async def test_a_bad_file_does_not_stop_the_others(files, streams, tmp_path):
    corrupt, gone, away = (tmp_path / name for name in ("corrupt.wav", "gone.wav", "away.wav"))
    corrupt.write_bytes(b"RIFF, or so")
    async with serving(ScriptedTranscription()) as address:
        assert not await streams.run([files[0], corrupt, gone, files[1], away], address, quiet=True)
    assert streams.out == TEXT * 2
    missing, broken, summary = streams.err.splitlines()
    assert re.fullmatch(r"error: 2 audio files do not exist: '.*gone\.wav', '.*away\.wav'\.", missing)
    assert re.fullmatch(r"error: Audio file '.*corrupt\.wav' cannot be decoded: neither .*", broken)
    assert summary == f"3 of 5 files failed: {gone}, {away}, {corrupt}"


async def test_missing_files_are_reported_before_anything_is_transcribed(files, streams, tmp_path):
    async with serving(ScriptedTranscription()) as address:
        assert not await streams.run([files[0], tmp_path / "gone.wav"], address)
    lines = streams.err.splitlines()
    assert re.fullmatch(r"error: Audio file '.*gone\.wav' does not exist\.", lines[0])
    assert lines.index(str(files[0])) == 1


async def test_a_file_that_the_server_refuses_is_named(files, streams):
    async with serving(ScriptedTranscription([], error=ServerFull("It is full."))) as address:
        assert not await streams.run(files, address, quiet=True)
    first, second, summary = streams.err.splitlines()
    assert (first, second) == (f"error: {files[0]}: It is full.", f"error: {files[1]}: It is full.")
    assert summary == f"2 of 2 files failed: {files[0]}, {files[1]}"


async def test_a_servers_refusal_is_one_sentence(files, streams):
    async with serving(ScriptedTranscription([], error=ServerFull("All 16 places are taken."))) as address:
        assert not await streams.run(files[:1], address)
    assert streams.err == "error: All 16 places are taken.\n"


async def test_models(streams):
    async with serving(ScriptedTranscription()) as address:
        await show_server(address, streams.console)
    for fact in ("large, drafted by tiny", "abc", "de, en", "16 at once", "1.2.3"):
        assert fact in streams.out


async def test_the_command_line_as_a_process(files):
    server = ScriptedTranscription()
    options = "--language de --task translate --no-timestamps --mode pipelined --gamma 4 --quiet".split()
    async with serving(server) as address:
        assert await run_cli("transcribe", files[0], "--server", address, *options) == (0, TEXT, "")
    config = server.config.config
    decoding = config.decoding
    assert (decoding.languages, decoding.timestamps, config.gamma) == (["de"], False, 4)
    assert (config.mode, decoding.task) == (3, 2)  # MODE_PIPELINED, TASK_TRANSLATE


async def test_no_server_is_one_sentence_and_status_1(files, unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    sentence = f"error: No server answers at {address}; is it running?\n"
    assert await run_cli("transcribe", files[0], "--server", address, "--quiet") == (1, "", sentence)
    assert await run_cli("models", "--server", address) == (1, "", sentence)


async def test_the_version():
    assert await run_cli("--version") == (0, f"specwhisper {__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "flag", "value"),
    [
        (("transcribe", "talk.mp3"), "--mode", Mode.ONE_PROCESS),  # no server has it
        (("listen",), "--task", "bogus"),
    ],
)
async def test_a_value_that_is_no_choice_is_refused(command, flag, value):
    status, out, err = await run_cli(*command, flag, value)
    assert (status, out) == (1, "")
    assert f"error: {flag} is '{value}': choose from " in err


async def test_options_are_named_as_whispers_and_reach_the_server(files):
    server = ScriptedTranscription()
    options = [
        *"--temperature 0.2 --temperature_increment_on_fallback 0.4 --logprob_threshold -1".split(),
        *"--compression-ratio-threshold 2.4 --compression-ratio-of text --no_speech_threshold 0.6".split(),
        *"--word_timestamps --word-times model --condition-on-previous-text --seed 7".split(),
        *"--top-k 40 --top-p 0.9".split(),
        *("--initial_prompt", "Ray Serve", "--carry-initial-prompt", "--hotwords", "gamma"),
        *"--hallucination_silence_threshold 1.5 --padding zero".split(),
        *"--max-initial-timestamp 0.5 --max_new_tokens 99".split(),
    ]
    async with serving(server) as address:
        status, _, err = await run_cli("transcribe", files[0], "--server", address, "--quiet", *options)
    assert (status, err) == (0, "")
    decoding = decoding_options_from_proto(server.config.config.decoding)
    assert decoding == DecodingOptions.greedy(
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
        initial_prompt="Ray Serve",
        carry_initial_prompt=True,
        hotwords="gamma",
        hallucination_silence_threshold=1.5,
        padding=Padding.ZERO,
        max_initial_timestamp_s=0.5,
        max_new_tokens=99,
    )


async def test_each_file_has_the_hint_of_its_name(files, tmp_path):
    server = ScriptedTranscription()
    hints = tmp_path / "hints"
    hints.mkdir()
    (hints / "second.txt").write_text("a script", "utf-8")
    async with serving(server) as address:
        for recordings, hint in ((files, "a script"), (files[:1], "")):
            status, _, err = await run_cli(
                "transcribe", *recordings, "--server", address, "--quiet", "--hint", hints
            )
            assert (status, err) == (0, "")
            assert decoding_options_from_proto(server.config.config.decoding).hint == hint
        _, _, err = await run_cli("transcribe", *files, "--server", address, "--hint", hints)
        assert f"1 of {len(files)} recordings have a hint." in err
        status, _, err = await run_cli(
            "transcribe", *files, "--server", address, "--hint", hints / "second.txt"
        )
    assert status == 1
    assert err.startswith("error: --hint FILE is the text of one recording")


async def test_booleans_and_none_are_read_as_openais(files):
    server = ScriptedTranscription()
    options = [
        *"--word_timestamps True --condition_on_previous_text False --carry_initial_prompt=False".split(),
        *"--temperature_increment_on_fallback None --logprob_threshold=None --beam_size None".split(),
        *"--patience None --best_of 1 --suppress_tokens -1 --fp16 None --language None".split(),
        *"--no-timestamps True --acceptance-threshold 0.5".split(),
        *("--initial_prompt", "--fp16", "--hotwords", "--model"),  # texts, whatever they look like
    ]
    async with serving(server) as address:
        status, out, err = await run_cli("transcribe", *options, files[0], "--server", address, "--quiet")
    assert (status, out, err) == (0, TEXT, "")
    decoding = decoding_options_from_proto(server.config.config.decoding)
    assert decoding == DecodingOptions(
        temperatures=(0.0,),
        logprob_threshold=None,
        word_timestamps=True,
        timestamps=False,
        initial_prompt="--fp16",
        hotwords="--model",
        acceptance_threshold=0.5,
        compression_ratio_of=CompressionRatio.TEXT,
    )


async def test_all_formats_at_once(files, tmp_path):
    folder = tmp_path / "out"
    async with serving(ScriptedTranscription()) as address:
        arguments = ("transcribe", files[0], "--server", address, "--quiet", "-f", "all")
        assert await run_cli(*arguments, "-o", folder) == (0, "", "")
        status, _, err = await run_cli(*arguments)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".srt", ".tsv", ".txt", ".vtt"]
    assert (status, err) == (1, "error: Several formats need a folder: add --output-dir FOLDER.\n")


async def test_an_unknown_format_names_the_choice():
    status, _, err = await run_cli("transcribe", "talk.mp3", "-f", "docx")
    assert status == 1
    assert "--output-format is 'docx': choose from txt, json" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    mostly_nightly(
        [
            (["--beam-size", "5"], "beam search"),
            (["--beam_size", "0"], "beam search"),
            (["--patience", "2.0"], "beam search"),
            (["--best_of", "5"], "one text is sampled"),
            (["--fp16", "False"], "fp16 is set at the server"),
            (["--clip_timestamps", "0,10"], "clip_timestamps is not offered"),
            (["--temperature_increment_on_fallback", "0.2"], "no window fails without a threshold"),
            (["--max_line_width", "20"], "add --word-timestamps"),
            (["--print_colors", "True"], "add --word-timestamps"),
            (["-f", "unsure"], "add --word-timestamps"),
            (["--word_timestamps", "True", "--max_line_count", "2"], "without --max-line-width"),
            (["--top-p", "1.5"], "--top-p is 1.5"),
        ],
        by_day=3,
    ),
)
async def test_what_cannot_be_is_one_sentence(files, unused_tcp_port, options, sentence):
    address = f"127.0.0.1:{unused_tcp_port}"
    status, out, err = await run_cli("transcribe", files[0], "--server", address, *options)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sentence.lower() in err.lower()
