"""``specwhisper tune``: what a link and a pair of models are good for, measured for a minute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import specwhisper
from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.advice import Advice, advise
from specwhisper.speculation.comparison import COMPARED, MIN_ROUNDS, Measured, Round, TimedTranscription
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.local_draft import Pair
from specwhisper_client.cli.server_process import following, start_server

SAMPLES = Path(specwhisper.__file__).parent / "demo" / "samples"


async def tune(pair: Pair, files: Sequence[Path], seconds: float, console: Console) -> dict[str, Any]:
    """Measure a pair over its link, print what it is good for, and give the same as plain values.

    Parameters
    ----------
    files : recordings of English speech; none for the bundled ones.
    seconds : how long to measure, though for no less than two recordings.

    Raises
    ------
    UnsupportedOption : no model can run here.
    TargetUnavailable : the draft server did not start, or the target does not answer.
    SpecWhisperError : the recordings hold too little speech.
    """
    if find_spec("torch") is None:
        raise UnsupportedOption("tune runs a draft server here: pip install 'specwhisper[server]'.")
    files = files or sorted(path for path in SAMPLES.iterdir() if path.suffix in (".flac", ".ogg", ".mp3"))
    with following(start_server(pair.command, pair.environment), "The draft server") as address:
        async with TranscriptionClient(address) as client:
            model, rounds = await _measure(client, files, seconds, console)
    advice = advise(rounds)
    title = f"{model.target}, drafted by {model.draft}"
    _print(title, advice, f"{len(rounds)} rounds of {min(len(rounds), len(files))} recordings", console)
    return {
        "model": title,
        "rounds": [{mode: each[mode].time_per_token_s for mode in COMPARED} for each in rounds],
        "mode": advice.best.mode,
        "reason": advice.reason,
        "gamma": _gamma(advice),
        **asdict(advice),
    }


async def _measure(
    client: TranscriptionClient, files: Sequence[Path], seconds: float, console: Console
) -> tuple[ModelInfo, list[Round]]:
    """Transcribe one recording after the other in every mode, once to warm up and then for so long.

    Every round begins with another mode, so that none always comes first. The models told are those of the
    last mode, which has a draft.
    """
    options = DecodingOptions(language="en")
    with console.status("warming up ..."):
        for mode in COMPARED:
            model = (await client.transcribe_file(files[0], options, mode=mode)).model
    rounds: list[Round] = []
    ends_s = time.monotonic() + seconds
    while len(rounds) < MIN_ROUNDS or time.monotonic() < ends_s:
        file, first = files[len(rounds) % len(files)], len(rounds) % len(COMPARED)
        sessions = {}
        for mode in (*COMPARED[first:], *COMPARED[:first]):
            with console.status(f"{mode}, {file.name}, {max(0.0, ends_s - time.monotonic()):.0f} s left"):
                transcript = await client.transcribe_file(file, options, mode=mode)
            sessions[mode] = TimedTranscription(
                transcript.elapsed_s, transcript.stats or SpeculationStatistics()
            )
        rounds.append(sessions)
    return model, rounds


def _gamma(advice: Advice) -> str:
    """Say in words which draft length to ask for."""
    best = advice.best
    if not best.mode.drafts:
        return "none, since nothing is drafted"
    settled = _settled(best)
    came_to = f"blocks of {settled}" if settled else "a pause"
    told = f"chosen as it goes, without --gamma; here it came to {came_to}"
    if best.mode.is_lock_step:
        told += f"; of fixed lengths {advice.here.gamma} would be best (an estimate)"
    return told


def _settled(measured: Measured) -> str:
    """Say at which portions, and how far ahead, its sessions ended; nothing where they drafted nothing."""
    if not measured.gamma or not measured.max_ahead:
        return ""
    ahead = "" if measured.mode.is_lock_step else f", to {measured.max_ahead} ahead"
    return f"{measured.gamma}{ahead}"


def _print(title: str, advice: Advice, extent: str, console: Console) -> None:
    best, costs = advice.best, advice.costs
    facts = Table.grid(padding=(0, 2))
    for label, value in (
        ("model", title),
        ("link", f"{1e3 * costs.round_trip_s:.1f} ms there and back, with all that a message costs"),
        ("draft", f"{1e3 * costs.draft_s:.1f} ms a step"),
        (
            "target",
            f"{1e3 * costs.forward_s:.1f} ms a pass, and {1e3 * costs.forward_token_s:.2f} ms a token",
        ),
        ("measured", f"{extent} in every mode, all a client waits for"),
    ):
        facts.add_row(f"[dim]{label}[/dim]", value)
    columns = ("mode", "ms per token", "over target-only", "accepted", "blocks of")
    measured = Table(*columns, caption="in brackets 95 % intervals")
    for one in advice.measured:
        measured.add_row(
            one.mode,
            f"{1e3 * one.time_per_token_s:.1f}",
            "1" if one.mode is Mode.TARGET_ONLY else escape(str(one.over_target_only)),
            f"{one.acceptance_rate:.0%}" if one.mode.drafts else "",
            _settled(one),
        )
    console.print(facts, measured, highlight=False)
    speed = f"{1e3 * best.time_per_token_s:.1f} ms per token"
    if best.mode.drafts:
        speed += f", {best.over_target_only} times what the target alone takes"
    for line in (
        f"Run --mode {best.mode}: {advice.reason}.",
        f"Speed, as measured: {speed}.",
        f"Draft length: {_gamma(advice)}.",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    _print_estimates(advice, console)


def _print_estimates(advice: Advice, console: Console) -> None:
    console.print("\nEstimates by closed form: ms per token of decoding alone, by round trip in ms")
    table = Table("round trip", "target-only", "sync (its gamma)", "pipelined", "full")
    for expected in advice.elsewhere:
        times = {mode: f"{1e3 * time_s:.1f}" for mode, time_s in expected.times_s.items()}
        times[Mode.SYNC] += f" ({expected.gamma})"
        table.add_row(f"{1e3 * expected.round_trip_s:.0f}", *(times[mode] for mode in COMPARED))
    console.print(table, highlight=False)
    together = advice.one_process
    for line in (
        f"Both models in one process on the target's machine: {1e3 * together.times_s[Mode.SYNC]:.1f} with "
        f"gamma {together.gamma}, if the draft is as fast there as here (an assumption, not measured).",
        "The estimates are made from the times that sessions in sync found, and from how often the draft was "
        "right: for sync and one process in sync, for pipelined and full in pipelined.",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
