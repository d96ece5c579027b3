"""Folders of recordings on the command line: several at a time, resumed, and interrupted."""

import asyncio
import io
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console

from specwhisper.errors import ServerFull
from specwhisper.rpc.failover import Failover
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.cli.recordings import OutputFormat
from specwhisper_draft_server.responses import duration
from tests.rpc.client_scripts import MODEL, STATISTICS, ScriptedTranscription, final, serving
from tests.rpc.services import eventually
from tests.rpc.terminals import Streams, end_of_cli, run_cli, start_cli

SECOND = 16_000


class Counting(ScriptedTranscription):
    """Writes how many seconds of audio each session had.

    Parameters
    ----------
    at_once : sessions that must be open before the first of them ends.
    max_sessions : more are refused.
    """

    def __init__(self, at_once: int = 1, max_sessions: int = 100) -> None:
        super().__init__()
        self.at_once, self.max_sessions = at_once, max_sessions
        self.num_open = self.most_open = self.num_refused = 0
        self.has_refused, self.are_there = asyncio.Event(), asyncio.Event()
        self.ends: dict[int, asyncio.Event] = {}  # by seconds of audio: what a session waits for
        self.lengths: list[int] = []
        self.ended: asyncio.Queue[int] = asyncio.Queue()

    async def StreamingRecognize(self, request_iterator, context):
        if self.num_open == self.max_sessions:
            self.num_refused += 1
            self.has_refused.set()
            raise ServerFull("All places are taken.")
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            if self.num_open >= self.at_once:
                self.are_there.set()
            await self.are_there.wait()
            num_bytes = 0
            async for request in request_iterator:
                if request.ping:
                    yield pb.StreamingRecognizeResponse(ping=request.ping)
                num_bytes += len(request.audio_content)
            seconds = num_bytes // 2 // SECOND
            await self.ends.setdefault(seconds, done()).wait()
            self.lengths.append(seconds)
            self.ended.put_nowait(seconds)
            yield pb.StreamingRecognizeResponse(
                results=[final(0.0, seconds, f" {seconds} seconds.", (50365, 440, 50440), 0.75)],
                model=MODEL,
                statistics=STATISTICS,
                audio_received=duration(seconds),
                language=pb.SpokenLanguage(code="en", name="english"),
            )
        finally:
            self.num_open -= 1


def done() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
def folder(tmp_path):
    """Return a folder of recordings of 1, 2, 3 and 4 seconds; two have the same name."""
    for seconds, name in enumerate(("a/one.wav", "a/two.wav", "b/one.flac", "c.ogg"), start=1):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.zeros(seconds * SECOND, np.int16), SECOND)
    return tmp_path / "in"


def written(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder; hidden ones too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


TEXTS = {
    "c.txt": "4 seconds.\n",
    "a/one.txt": "1 seconds.\n",
    "a/two.txt": "2 seconds.\n",
    "b/one.txt": "3 seconds.\n",
}


@pytest.mark.parametrize("batch_size", [1, 3])
async def test_a_folder_is_transcribed_several_at_a_time(folder, tmp_path, batch_size):
    streams, server = Streams(), Counting(at_once=batch_size)
    async with serving(server) as address:
        assert await streams.run([folder], address, output_dir=tmp_path / "out", batch_size=batch_size)
    assert written(tmp_path / "out") == TEXTS
    assert server.most_open == batch_size
    assert streams.out == ""
    assert re.fullmatch(r"4 recordings, 00:10\.00 in \S+: \S+ times as fast as speech\n", streams.err)


async def test_texts_on_standard_output_are_in_the_order_of_the_recordings(folder):
    streams, server = Streams(), Counting(at_once=4)
    server.ends[4] = asyncio.Event()  # the first one ends last
    async with serving(server) as address:
        run = asyncio.create_task(streams.run([folder], address, batch_size=4))
        for _ in range(3):
            await server.ended.get()
        assert streams.out == ""
        server.ends[4].set()
        assert await run
    assert streams.out == "".join(TEXTS.values())
    titles = [str(folder / name) for name in ("c.ogg", "a/one.wav", "a/two.wav", "b/one.flac")]
    assert streams.err.splitlines()[:-1] == titles


async def test_an_interrupted_batch_prints_the_texts_that_are_complete(folder):
    streams, server = Streams(), Counting(at_once=4)
    server.ends[4] = asyncio.Event()  # the first one never ends
    async with serving(server) as address:
        run = asyncio.create_task(streams.run([folder], address, batch_size=4, quiet=True))
        for _ in range(3):
            await server.ended.get()
        await eventually(lambda: server.num_open == 1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    complete = list(TEXTS.values())[1:]
    assert [text for text in complete if text in streams.out] == complete[: streams.out.count("\n")]
    assert "4 seconds" not in streams.out


async def test_existing_transcripts_are_skipped_once_all_formats_are_there(folder, tmp_path):
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    for name in ("a/one.txt", "a/one.srt", "c.txt"):
        (out / name).write_text("here already")
    streams, server = Streams(), Counting()
    how = {"output_dir": out, "formats": [OutputFormat.TXT, OutputFormat.SRT], "skip_existing": True}
    async with serving(server) as address:
        assert await streams.run([folder], address, **how)
        assert await streams.run([folder], address, **how)
    assert sorted(server.lengths) == [2, 3, 4]
    texts = written(out)
    assert len(texts) == 8
    assert {name for name in texts if texts[name] == "here already"} == {"a/one.txt", "a/one.srt"}
    assert "1 of 4 recordings have their transcripts already." in streams.err
    assert "4 of 4 recordings have their transcripts already." in streams.err


async def test_a_full_server_takes_the_next_recording_once_another_has_ended(folder, tmp_path):
    streams, server = Streams(), Counting(max_sessions=1)
    server.ends[4] = asyncio.Event()
    async with serving(server) as address:
        job = {"output_dir": tmp_path / "out", "batch_size": 2}
        run = asyncio.create_task(streams.run([folder], address, **job))
        await server.has_refused.wait()
        server.ends[4].set()
        assert await run
    assert written(tmp_path / "out") == TEXTS
    assert server.most_open == 1


async def test_a_server_that_is_full_without_us_refuses_every_recording(folder, tmp_path):
    streams, server = Streams(), Counting(max_sessions=0)
    async with serving(server) as address:
        job = {"output_dir": tmp_path / "out", "batch_size": 2}
        assert not await streams.run([folder], address, **job)
    assert streams.err.count("All places are taken.") == 4
    assert "4 of 4 files failed" in streams.err
    assert written(tmp_path / "out") == {}


@pytest.mark.parametrize("batch_size", [1, 2])
async def test_without_a_server_no_other_recording_is_begun(folder, tmp_path, unused_tcp_port, batch_size):
    streams, address = Streams(), f"127.0.0.1:{unused_tcp_port}"
    job = {"output_dir": tmp_path / "out", "batch_size": batch_size}
    assert not await streams.run([folder], address, **job)
    first, not_begun, summary = streams.err.splitlines()
    assert first.endswith(f"No server answers at {address}; is it running?")
    assert not_begun == (
        f"{4 - batch_size} more not begun; the same command with --skip-existing transcribes the rest."
    )
    assert summary.startswith(f"{batch_size} of 4 files failed: ")
    assert written(tmp_path / "out") == {}
    assert not await streams.run([folder], address, batch_size=batch_size)
    assert f"{4 - batch_size} more not begun.\n" in streams.err


async def test_a_server_that_was_there_is_waited_for(folder, tmp_path, unused_tcp_port, monkeypatch):
    streams, server, waits, wait = Streams(), Counting(), asyncio.Event(), Failover.wait

    async def noted(self, error, **options):  # in the batch, or in a call that broke off
        waits.set()
        await wait(self, error, **options)

    monkeypatch.setattr(Failover, "wait", noted)
    async with serving(server, unused_tcp_port) as address:
        run = asyncio.create_task(streams.run([folder], address, output_dir=tmp_path / "out"))
        await server.ended.get()
    await waits.wait()
    async with serving(server, unused_tcp_port):
        assert await run
    assert written(tmp_path / "out") == TEXTS


async def test_a_terminal_shows_how_far_a_batch_is(folder, tmp_path):
    streams, file = Streams(), io.StringIO()
    streams.errors = Console(file=file, force_terminal=True, width=100)
    server = Counting()
    async with serving(server) as address:
        assert await streams.run([folder], address, output_dir=tmp_path / "out")
    drawn = file.getvalue()
    assert "00:00.00 of 00:10.00, 0 of 4 recordings" in drawn
    assert "00:10.00 of 00:10.00, 4 of 4 recordings" in drawn


async def test_an_interrupted_folder_has_whole_transcripts_and_is_resumed(folder, tmp_path):
    out, server = tmp_path / "out", Counting()
    server.ends[2] = asyncio.Event()
    async with serving(server) as address:
        arguments = ("transcribe", folder, "--server", address, "-o", out, "-f", "txt", "--batch-size", "2")
        process = await start_cli(*arguments)
        while not all((out / name).exists() for name in TEXTS if name != "a/two.txt"):
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        status, _, err = await end_of_cli(process)
        assert status == 130
        assert "--skip-existing transcribes the rest" in err
        assert written(out) == {name: text for name, text in TEXTS.items() if name != "a/two.txt"}
        server.ends[2].set()
        status, printed, err = await run_cli(*arguments, "--skip-existing")
    assert (status, printed) == (0, "")
    assert "3 of 4 recordings have their transcripts already." in err
    assert written(out) == TEXTS
    whole = [length for length in server.lengths if length]  # the interrupted call may have sent nothing
    assert sorted(whole) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--word-timestamps --print-colors -o {}/out", "--print-colors is for text on the terminal"),
        ("--hint {}/script.txt", "--hint FILE is the text of one recording"),
    ],
)
async def test_what_is_for_one_recording_is_refused_for_several(folder, unused_tcp_port, options, sentence):
    (folder / "script.txt").write_text("a script")
    command = ("transcribe", folder / "a" / "*.wav", "--server", f"127.0.0.1:{unused_tcp_port}")
    status, _, err = await run_cli(*command, *options.format(folder).split())
    assert status == 1
    assert err.startswith(f"error: {sentence}")
