"""A microphone yields its audio until it is closed or unplugged, and drops it when its reader is too slow."""

import asyncio
import sys

import pytest
from typer.testing import CliRunner

from specwhisper.errors import InvalidRequest
from specwhisper_client import sources
from specwhisper_client.cli.main import app


class FakeDevices:
    """A module in the place of sounddevice; keeps the last stream that was opened."""

    class PortAudioError(Exception):
        pass

    class RawInputStream:
        def __init__(self, *, device, callback, finished_callback, **_) -> None:
            if device == "nowhere":
                raise FakeDevices.PortAudioError("no such device")
            self.device, self.callback, self.finished_callback = device, callback, finished_callback
            self.is_open = False
            FakeDevices.stream = self

        def __enter__(self) -> None:
            self.is_open = True

        def __exit__(self, *_) -> None:
            self.is_open = False

        async def record(self, *recorded: bytes) -> None:
            for piece in recorded:
                self.callback(memoryview(piece), 1, None, None)
            await asyncio.sleep(0)


@pytest.fixture
def devices(monkeypatch) -> type[FakeDevices]:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeDevices)
    return FakeDevices


@pytest.mark.parametrize(("device", "opened"), [(None, None), ("3", 3), ("USB", "USB")])
async def test_a_microphone_yields_its_audio_until_it_is_closed(devices, device, opened):
    async with sources.microphone(device) as pieces:
        assert (devices.stream.device, devices.stream.is_open) == (opened, True)
        await devices.stream.record(b"01")
        assert await anext(pieces) == b"01"
    assert not devices.stream.is_open


async def test_audio_before_a_microphone_was_unplugged_is_read(devices, caplog):
    async with sources.microphone() as pieces:
        await devices.stream.record(b"01", b"23")
        devices.stream.finished_callback()
        assert [piece async for piece in pieces] == [b"01", b"23"]
    assert "may have been unplugged" in caplog.text


async def test_a_microphone_that_cannot_be_opened_is_one_sentence(devices):
    with pytest.raises(InvalidRequest, match=r"cannot be opened \(no such device\): choose another one"):
        async with sources.microphone("nowhere"):
            pass


async def test_a_late_reader_of_the_microphone_loses_one_stretch_and_gets_one_warning(
    devices, monkeypatch, caplog
):
    monkeypatch.setattr(sources, "MAX_UNREAD_PIECES", 4)
    async with sources.microphone() as pieces:
        received = b""
        await devices.stream.record(b"0", b"1", b"2", b"3", b"lost")
        for piece in (b"lost", b"lost", b"4", b"5"):
            received += await anext(pieces)
            await devices.stream.record(piece)
        received += await anext(pieces) + await anext(pieces)
    assert received == b"012345"
    assert caplog.text.count("new audio is dropped") == 1


@pytest.mark.parametrize(
    ("module", "status", "sentence"),
    [
        (
            "raise ModuleNotFoundError(name='sounddevice')",
            2,
            "pip install 'specwhisper[microphone]', or try --simulate FILE.",
        ),
        ("raise OSError('PortAudio library not found')", 1, "(PortAudio library not found): apt-get install"),
    ],
)
def test_listen_names_what_a_microphone_needs(module, status, sentence, tmp_path, monkeypatch):
    (tmp_path / "sounddevice.py").write_text(module)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["listen"])
    assert (result.exit_code, result.stdout) == (status, "")
    assert sentence in result.stderr and len(result.stderr.splitlines()) == 1
