"""The bars of experiments.promises, from figures, and that it detects what it looks for."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest
from websockets.protocol import State
from websockets.server import ServerProtocol

from experiments.promises import __main__ as program
from experiments.promises import (
    beside,
    bombs,
    cancel,
    far_targets,
    faults,
    flood,
    handshakes,
    loading,
    messages,
    resets,
    slow_link,
    slow_reader,
    slow_targets,
    stops,
    texts,
)
from experiments.promises.__main__ import Promise, all_measures
from experiments.promises.beside import Attacked
from experiments.promises.bombs import Bomb
from experiments.promises.cancel import Freed
from experiments.promises.far_targets import Far
from experiments.promises.faults import Faulted, Short
from experiments.promises.flood import Flooded
from experiments.promises.handshakes import Silent
from experiments.promises.loading import Ended
from experiments.promises.memory import Peak
from experiments.promises.messages import Sent
from experiments.promises.resets import Survived
from experiments.promises.slow_link import Passed
from experiments.promises.slow_reader import Beside, Fourth
from experiments.promises.slow_targets import Continued
from experiments.promises.stops import Stopped
from experiments.promises.talkative import talkative_gateway
from experiments.promises.texts import Hostile
from specwhisper.model.faults import FAULT_STATUS

MIB = 2**20
FREED = Freed("verify", (0.1, 0.2))
SURVIVED = Survived(300, 3, 0.1, ())
FLOODED = Flooded((0.02, 0.03, 0.9), (0.1,) * 80, 0, ())
BESIDE = Beside(
    60.0,
    {Fourth.NONE: [0.1, 0.1], Fourth.NOT_READING: [0.11, 0.1], Fourth.READER: [0.2, 0.2]},
    ("RESOURCE_EXHAUSTED",) * 2,
    (),
)
BOMB = Bomb("FLAC", 3_600.0, 1_000, 3 * MIB, is_refused=True)
STOPPED = Stopped("target", 0.1, 0, 0, 3, ())
FAULTED, SHORT = Faulted(0.1, FAULT_STATUS, ()), Short(3, 2, 0.5, ())
SENT = Sent("unknown keys", 14_000_000, (2.0, 3.0, 2.0), (30.0, 90.0, 40.0), 3 * MIB)
ENDED = Ended("specwhisper_target_server", False, 0.1, -15)
SILENT = Silent(400, 10.1, (0.02, 0.1), 0)
FAR = Far(2, 28.0, ())
ATTACKED = Attacked("12 uploads", (0.5, 0.4, 0.5), (0.9, 9.0, 0.8), (0.01,) * 30)
CONTINUED, HOSTILE = Continued("recordings at a slow target", 16.0, 60.0, ()), Hostile("'<'", 0.1, ())
PASSED = Passed(20.0, True, 1.1, 0, ())
GOOD = {
    "cancel": cancel.bars([FREED]),
    "flood": flood.bars(FLOODED),
    "resets": resets.bars(SURVIVED),
    "slow reader": slow_reader.bars(BESIDE, 0),
    "bombs": bombs.bars([BOMB]),
    "stops": stops.bars([STOPPED]),
    "messages": messages.bars([SENT]),
    "faults": faults.bars([FAULTED], [SHORT], [SHORT]),
    "loading": loading.bars([ENDED, Ended("specwhisper_draft_server", True, 0.2, 143)]),
    "handshakes": handshakes.bars(SILENT),
    "far targets": far_targets.bars(FAR),
    "beside": beside.bars([ATTACKED]),
    "slow targets": slow_targets.bars([CONTINUED]),
    "texts": texts.bars(HOSTILE),
    "slow link": slow_link.bars([PASSED]),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_figures_pass_every_bar(name):
    assert all(bar.holds for bar in GOOD[name])


@pytest.mark.parametrize(
    "bars",
    [
        cancel.bars([FREED, replace(FREED, took_s=(0.1, 1.1))]),
        flood.bars(replace(FLOODED, answers_s=(0.02,) * 70 + (0.2,) * 10)),
        flood.bars(replace(FLOODED, alone_s=(0.01, 0.01, 0.9))),
        flood.bars(replace(FLOODED, num_other=1)),
        flood.bars(replace(FLOODED, wrong=("words lost",))),
        resets.bars(replace(SURVIVED, free_s=1.1)),
        resets.bars(replace(SURVIVED, wrong=("lost",))),
        slow_reader.bars(replace(BESIDE, gaps_s={**BESIDE.gaps_s, Fourth.NOT_READING: [0.2, 0.1]}), 0),
        slow_reader.bars(replace(BESIDE, statuses=("RESOURCE_EXHAUSTED", "OK")), 0),
        slow_reader.bars(replace(BESIDE, wrong=("lost",)), 0),
        bombs.bars([BOMB, replace(BOMB, growth_bytes=65 * MIB)]),
        bombs.bars([BOMB, replace(BOMB, is_refused=False)]),
        stops.bars([STOPPED, replace(STOPPED, notice_s=0.6)]),
        stops.bars([STOPPED, replace(STOPPED, exit_status=-9)]),
        stops.bars([STOPPED, replace(STOPPED, wrong=("lost",))]),
        stops.bars([STOPPED, replace(STOPPED, num_orphans=1)]),
        messages.bars([SENT, replace(SENT, delays_ms=(57.0, 58.0, 4.0))]),
        messages.bars([replace(SENT, delays_ms=(3.0, 600.0, 4.0))]),
        messages.bars([replace(SENT, growth_bytes=65 * MIB)]),
        faults.bars([replace(FAULTED, exit_s=1.5)], [SHORT], [SHORT]),
        faults.bars([replace(FAULTED, exit_status=1)], [SHORT], [SHORT]),
        faults.bars([replace(FAULTED, wrong=("lost",))], [SHORT], [SHORT]),
        faults.bars([FAULTED], [replace(SHORT, longest_pause_s=3.5)], [SHORT]),
        faults.bars([FAULTED], [replace(SHORT, wrong=("lost",))], [SHORT]),
        faults.bars([FAULTED], [SHORT], [replace(SHORT, longest_pause_s=3.5)]),
        faults.bars([FAULTED], [SHORT], [replace(SHORT, num_times=0)]),
        loading.bars([ENDED, replace(ENDED, end_s=1.2)]),
        loading.bars([ENDED, replace(ENDED, exit_status=1)]),
        handshakes.bars(replace(SILENT, longest_s=60.0)),
        handshakes.bars(replace(SILENT, answers_s=(0.02, 5.0))),
        handshakes.bars(replace(SILENT, num_over_kept=1)),
        far_targets.bars(replace(FAR, wrong=("failed",))),
        beside.bars([ATTACKED, replace(ATTACKED, beside_s=(1.1, 1.2, 0.5))]),
        beside.bars([replace(ATTACKED, metrics_s=(0.01,) * 20 + (0.3,) * 10)]),
        slow_targets.bars([CONTINUED, replace(CONTINUED, longest_s=61.0)]),
        slow_targets.bars([replace(CONTINUED, wrong=("lost",))]),
        texts.bars(replace(HOSTILE, slowest_s=2.5)),
        texts.bars(replace(HOSTILE, wrong=("hint.ttml: RecursionError",))),
        slow_link.bars([PASSED, replace(PASSED, ratio=1.4)]),
        slow_link.bars([PASSED, replace(PASSED, num_lost=1)]),
        slow_link.bars([PASSED, replace(PASSED, wrong=("words lost",))]),
    ],
)
def test_each_broken_promise_fails_one_bar(bars):
    assert sum(not bar.holds for bar in bars) == 1


@pytest.mark.parametrize(
    ("delays_ms", "is_decided"),
    [
        ((), False),
        ((4.0,), False),
        ((4.0, 5.0), True),
        ((60.0, 4.0, 5.0), False),
        ((60.0, 4.0, 5.0, 6.0), True),
        ((60.0, 5_000.0, 60.0, 4.0), False),
        ((60.0, 5_000.0, 60.0, 4.0, 5.0), True),
    ],
)
def test_a_message_is_repeated_until_rounds_below_the_bar_lead(delays_ms, is_decided):
    assert messages.is_decided((2.0,) * len(delays_ms), delays_ms, 2, 5) is is_decided


async def test_answers_without_a_message_are_asked_for_as_long_as_with_it(monkeypatch):
    monkeypatch.setattr(messages, "SETTLE_S", 0.01)
    durations_s = []

    async def send(*_):
        await asyncio.sleep(0.2)

    async def longest_ms(_address, meanwhile):
        began_s = monotonic()
        await meanwhile
        await asyncio.sleep(messages.SETTLE_S)
        durations_s.append(monotonic() - began_s)
        return 1.0

    monkeypatch.setattr(messages, "_send", send)
    monkeypatch.setattr(messages, "longest_ms", longest_ms)
    gateway = SimpleNamespace(pid=os.getpid(), address="127.0.0.1:1")
    await messages._measured(gateway, messages.Message("any", "", b""), 1, 1)
    beside_s, alone_s = durations_s
    assert alone_s == pytest.approx(beside_s, rel=0.5)


def test_messages_are_valid_websocket_frames():
    server = ServerProtocol(state=State.OPEN, max_size=None)
    for size in (0, 125, 126, 70_000):
        server.receive_data(messages.frame(messages.TEXT, b"x" * size))
    assert [len(frame.data) for frame in server.events_received()] == [0, 125, 126, 70_000]


def test_every_message_shape_has_all_sizes():
    found = list(messages.messages(messages.SIZES[:2]))
    assert len({(message.shape, len(message.content)) for message in found}) == len(found)
    assert all(sum(one.shape == message.shape for one in found) == 2 for message in found)


def test_quick_measures_only_promises_with_wide_bars_in_parallel():
    wanted = [Promise.FAR, Promise.FLOOD, Promise.STOPS, Promise.BOMBS]
    alone = [[promise] for promise in wanted]
    assert program.in_groups(wanted, quick=False) == [[], *alone]
    assert program.in_groups(wanted, quick=True) == [
        [Promise.FAR],
        [Promise.STOPS, Promise.BOMBS],
        [Promise.FLOOD],
    ]


async def test_long_transcripts_are_answered_in_every_format():
    async with talkative_gateway(120.0) as gateway:
        for message, response_format in zip(messages.recordings(), messages.FORMATS, strict=True):
            reader, writer = await asyncio.open_connection(*gateway.address.rsplit(":", 1))
            writer.write(message.content)
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith("HTTP/1.1 200 "), message.shape
            num_words = answer.count('"word":' if response_format == "verbose_json" else "hello")
            assert num_words == 280, message.shape  # 28 s of each window of 30 are spoken


@pytest.mark.parametrize("quick", [False, True])
def test_every_promise_is_measured(quick, tmp_path):
    assert set(all_measures(tmp_path, 0, quick=quick)) == set(Promise)


def test_json_has_the_conditions_of_the_figures():
    assert "ended after 60 s" in str(slow_reader.bars(BESIDE, 0)[0])
    assert "takes 3600 s of audio" in str(bombs.bars([BOMB])[0])


def test_a_failed_measurement_keeps_the_others_figures(tmp_path, monkeypatch):
    async def measured():
        return flood.bars(FLOODED), {"num_other": 0}, []

    async def failing():
        raise TimeoutError("no server answered")

    measures = {Promise.STOPS: failing, Promise.FLOOD: measured}
    monkeypatch.setattr(program, "all_measures", lambda *_, **__: measures)
    file = tmp_path / "promises.json"
    with pytest.raises(SystemExit) as ended:
        program.promises(only=list(measures), json=file)
    assert ended.value.code == 1
    figures = json.loads(file.read_text())
    assert figures["flood"] == {"num_other": 0}
    assert figures["wrong"] == ["stops: TimeoutError: no server answered"]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel keeps no count")
def test_a_short_peak_of_memory_is_measured():
    """In a process of its own: this one's height also falls, as other tests' models are collected."""
    holds = f"print(); input(); held = bytearray(b'1') * {128 * MIB}; del held; print(); input()"
    command = [sys.executable, "-c", holds]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        peak = Peak(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        assert peak.growth_bytes() > 100 * MIB
        assert Peak(child.pid).growth_bytes() < 64 * MIB, "a new height begins with what is held now"
        child.stdin.write("\n")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list processes")
def test_orphaned_processes_are_found():
    """A child that outlives its parent, and is adopted, still belongs to its session."""
    parent = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()']).pid)"
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        orphan = int(server.stdout.readline())
        server.wait()
        assert list(stops.processes_of(server.pid)) == [orphan]
        os.kill(orphan, 9)
