"""Output and exit status of the command line."""

import json
import re

import numpy as np
import pytest
import soundfile

from specwhisper.errors import ServerFull
from specwhisper.options import DecodingOptions
from specwhisper.wire.codec.terms import decoding_options_from_proto
from specwhisper_client.cli.models_command import show_server
from specwhisper_client.cli.recordings import OutputFormat
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway
from tests.rpc.terminals import Streams, run_cli

TEXT = "Hello there.\nBye.\n"
STATISTICS = [
    "large, drafted by tiny in blocks of 5 (full)",
    "real-time factor",
    "10 in 4 forward passes, 2.50 tokens per pass",
    "75.0% of 8 verified candidates",
    "1 of 10 tokens",
    "3 sent, the fastest answer took 0.16 ms",
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
    assert " \n" not in streams.err


async def test_a_program_without_grpc_is_named_at_once(files):
    async with serving(ScriptedTranscription()) as draft, running_gateway(draft) as gateway:
        address = gateway.server.address
        status, out, err = await run_cli("transcribe", "--server", address, str(files[0]))
    assert (status, out) == (1, "")
    assert err.startswith(f"error: The program at {address} does not speak gRPC")


async def test_on_a_terminal_segments_have_times_unless_the_text_has_none(files):
    terminal, untimed = Streams(is_terminal=True), Streams(is_terminal=True)
    server = ScriptedTranscription()
    async with serving(server) as address:
        assert await terminal.run(files[:1], address)
        assert await untimed.run(files[:1], address, options=DecodingOptions.greedy(timestamps=False))
    assert server.config.interim_results
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.out)
    assert "[00:00.00 → 00:01.50] Hello there." in plain
    assert "[00:01.50 → 00:02.25] Bye." in plain
    assert "real-time factor" in terminal.err
    assert "Hello there." in untimed.out
    assert "→" not in untimed.out


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


async def test_a_bad_file_does_not_stop_the_others(files, streams, tmp_path):
    corrupt, gone, away, empty = (
        tmp_path / name for name in ("corrupt.wav", "gone.wav", "away.wav", "empty")
    )
    corrupt.write_bytes(b"RIFF, or so")
    empty.mkdir()
    async with serving(ScriptedTranscription()) as address:
        assert not await streams.run([files[0], corrupt, gone, empty, files[1], away], address, quiet=True)
    assert streams.out == TEXT * 2
    first, hollow, second, broken, summary = streams.err.splitlines()
    assert hollow == f"error: The folder '{empty}' has no recordings."
    assert [first, second] == [f"error: Audio file '{path}' does not exist." for path in (gone, away)]
    assert re.fullmatch(r"error: Audio file '.*corrupt\.wav' cannot be decoded: neither .*", broken)
    assert summary == f"4 of 6 files failed: {gone}, {empty}, {away}, {corrupt}"


async def test_a_file_that_the_server_refuses_is_named(files, streams):
    async with serving(ScriptedTranscription([], error=ServerFull("It is full."))) as address:
        assert not await streams.run(files, address, quiet=True)
        assert not await streams.run(files[:1], address, quiet=True)
    assert streams.err.splitlines() == [
        f"error: {files[0]}: It is full.",
        f"error: {files[1]}: It is full.",
        f"2 of 2 files failed: {files[0]}, {files[1]}",
        "error: It is full.",
    ]


async def test_models(streams):
    async with serving(ScriptedTranscription()) as address:
        await show_server(address, streams.console)
    for fact in ("large, drafted by tiny", "abc", "de, en", "16 at once", "1.2.3"):
        assert fact in streams.out


async def test_the_command_line_sends_its_options(files):
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


async def test_all_formats_at_once(files, tmp_path):
    folder = tmp_path / "out"
    async with serving(ScriptedTranscription()) as address:
        arguments = ("transcribe", files[0], "--server", address, "--quiet", "-f", "all")
        assert await run_cli(*arguments, "-o", folder) == (0, "", "")
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".srt", ".tsv", ".txt", ".vtt"]
