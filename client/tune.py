"""``specwhisper tune``: what a link and a pair of models are good for, measured for a minute."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import specwhisper
from client.api import TranscriptionClient
from client.transcript import Transcript
from specwhisper.errors import SpecWhisperError, TargetUnavailable, UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.advice import Advice, advise
from specwhisper.speculation.controller import Estimates
from specwhisper.types import Mode

MEASURED = (Mode.TARGET_ONLY, Mode.SYNC, Mode.FULL)
SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, and the draft that is to work with it from here; options as the draft server has them."""

    target: str
    draft_model: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None

    @property
    def arguments(self) -> list[str]:
        """Give what the draft server is started with."""
        told = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        told += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        return told + (["--threads", str(self.threads)] if self.threads else [])


@dataclass(slots=True)
class Measured:
    """What sessions took.

    Attributes
    ----------
    times_s : by mode, of each session: seconds per token, encoding included.
    """

    times_s: dict[Mode, list[float]] = field(default_factory=lambda: defaultdict(list))
    estimates: Estimates | None = None
    acceptance_rate: float = 0.0
    model: str = ""

    def observe(self, transcript: Transcript, mode: Mode) -> None:
        """Note a session; the last one with a draft is what is known best."""
        statistics = transcript.statistics
        self.times_s[mode].append(transcript.elapsed_s / max(1, statistics.num_committed))
        self.estimates = statistics.estimates or self.estimates
        if mode is Mode.FULL:
            self.acceptance_rate = statistics.acceptance_rate
            self.model = f"{transcript.model.target}, drafted by {transcript.model.draft}"


async def tune(pair: Pair, files: Sequence[Path], seconds: float, console: Console) -> dict[str, Any]:
    """Measure a pair over its link, print what it is good for, and give the same as plain values."""
    if find_spec("torch") is None:
        raise UnsupportedOption("tune runs a draft server here: pip install 'specwhisper[server]'.")
    files = files or sorted(path for path in SAMPLES.iterdir() if path.suffix in (".flac", ".ogg", ".mp3"))
    with running_draft_server(pair) as address:
        async with TranscriptionClient(address) as client:
            measured = await _measure(client, files, seconds, console)
    if measured.estimates is None:
        raise SpecWhisperError(
            "Nothing could be measured: the recordings hold too little speech, name others."
        )
    advice = advise(measured.estimates)
    _print(measured, advice, console)
    return {
        "model": measured.model,
        "estimates": asdict(measured.estimates),
        "seconds_per_token": {str(mode): times for mode, times in measured.times_s.items()},
        "expected": [asdict(one) for one in advice.expected],
        "mode": str(advice.mode),
        "reason": advice.reason,
    }


async def _measure(
    client: TranscriptionClient, files: Sequence[Path], seconds: float, console: Console
) -> Measured:
    """Transcribe one recording after the other in every mode, once to warm up and then for so long."""
    measured, options = Measured(), DecodingOptions(language="en")
    with console.status("warming up ..."):
        for mode in MEASURED:
            await client.transcribe_file(files[0], options, mode=mode)
    ends_s, number = time.monotonic() + seconds, 0
    while number < len(MEASURED) or time.monotonic() < ends_s:
        mode, file = MEASURED[number % len(MEASURED)], files[number // len(MEASURED) % len(files)]
        with console.status(f"{mode}, {file.name}, {max(0.0, ends_s - time.monotonic()):.0f} s left"):
            measured.observe(await client.transcribe_file(file, options, mode=mode), mode)
        number += 1
    return measured


@contextmanager
def running_draft_server(pair: Pair) -> Iterator[str]:
    """Start a draft server here, and stop it; what it says when it cannot start is the error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "draft_server", *pair.arguments], stderr=subprocess.PIPE, text=True
    )
    last = ""
    try:
        for line in process.stderr or ():
            last = line.strip() or last
            if line.startswith("{") and (record := json.loads(line))["message"] == "ready":
                yield record["address"]
                return
        raise TargetUnavailable(f"The draft server did not start: {last}")
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _print(measured: Measured, advice: Advice, console: Console) -> None:
    estimates = measured.estimates
    if estimates is None:
        raise RuntimeError("There is nothing to print.")
    facts = Table.grid(padding=(0, 2))
    for label, value in (
        ("model", measured.model),
        (
            "link",
            f"{estimates.round_trip_ns / 1e6:.1f} ms there and back, +- {estimates.jitter_ns / 1e6:.1f} ms",
        ),
        ("draft", f"{estimates.draft_ns / 1e6:.1f} ms a step"),
        (
            "target",
            f"{estimates.pass_ns / 1e6:.1f} ms a pass, {estimates.pass_token_ns / 1e6:.2f} ms a token in it",
        ),
        ("acceptance", f"{measured.acceptance_rate:.0%} of the verified candidates"),
    ):
        facts.add_row(f"[dim]{label}[/dim]", value)
    console.print(facts, highlight=False)
    table = Table("mode", "gamma", "expected, ms per token", "measured, with the encoder")
    for one in advice.expected:
        times = measured.times_s.get(one.mode)
        bound = ">= " if one.mode is Mode.FULL else ""
        where = " (on the target's machine)" if one.mode is Mode.ONE_PROCESS else ""
        table.add_row(
            f"{one.mode}{where}",
            "" if one.mode is Mode.TARGET_ONLY else str(one.gamma or "chosen"),
            f"{bound}{1e3 * one.time_per_token_s:.1f}",
            f"{1e3 * median(times):.1f}" if times else "",
        )
    console.print(table)
    console.print(f"Run --mode {advice.mode}: {advice.reason}.", highlight=False, soft_wrap=True)
