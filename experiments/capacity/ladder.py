"""``ladder``: tokens per second of one target with more and more clients, beside what the law predicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import ceil, floor
from random import Random
from statistics import mean, median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from experiments.capacity.clients import Counts, Load, Spoken, run_clients
from experiments.capacity.laws import predicted
from experiments.capacity.target import TargetSettings, Usage, serve_target
from experiments.common.audio.samples import Sample, load_samples
from experiments.common.bench.passes import pass_times_s
from experiments.common.bench.program import Audio, Draft, Program, Rounds, Target, parse_levels, program
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.common.servers.forked import ForkedServer
from experiments.common.servers.processes import first_two_cores, on_cores
from specwhisper.model.backends import limit_threads
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper_client.cli.advice import Ratio

LEVELS, QUICK_LEVELS = "1,2,4,8,16,32,64", "4"
MODES, QUICK_MODES = (Mode.TARGET_ONLY, Mode.FULL, Mode.SYNC), (Mode.TARGET_ONLY, Mode.FULL)
OPTIONS = DecodingOptions.greedy(language="en")
LEAD_S = 1.0  # from the command to the first client: the clients before are gone
JUDGED_SESSIONS = 8
PASS_REPEATS = 40
OF_PREDICTED = 0.85  # the bar


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measured period of clients and target; counts are sums over the sessions."""

    mode: Mode
    num_sessions: int
    period_s: float
    counts: Counts
    usage: Usage
    resident_mb: float

    def tokens_per(self, seconds: float) -> float:
        return self.counts.num_tokens / seconds if seconds else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.tokens_per(self.period_s)

    @property
    def width(self) -> float:
        """Candidates of one session per forward pass with candidates."""
        return self.counts.num_verified / max(1, self.counts.num_verifying)

    @property
    def facts(self) -> dict[str, Any]:
        """The outcome as JSON values, as `docs/figures/latency-capacity.json` has them."""
        load = {"arm": self.mode.value, "num_sessions": self.num_sessions, "period_s": self.period_s}
        derived = {"tokens_per_s": self.tokens_per_s, "resident_mb": self.resident_mb}
        return {"load": load, **asdict(self.counts), "usage": asdict(self.usage), **derived}


Outcomes = Mapping[tuple[Mode, int], Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of one mode over target-only with as many sessions.

    Attributes
    ----------
    width : candidates of a session in a forward pass that has some.
    batch_sizes : sessions in a forward pass of target-only and of the mode.
    decoding : tokens per processor second of the target without its encoder, relative to target-only.
    whole : tokens per second of wall time, relative to target-only.
    """

    arm: str
    num_sessions: int
    width: float
    batch_sizes: tuple[float, float]
    decoding: Ratio
    whole: Ratio


@program
def ladder(
    given: Program,
    sessions: Annotated[
        str | None, typer.Option(metavar="N,N,...", help=f"Numbers of clients. [default: {LEVELS}]")
    ] = None,
    mode: Annotated[
        list[Mode] | None,
        typer.Option("--modes", help="Mode; repeat for more. [default: target-only, full, sync]"),
    ] = None,
    decoding_only: Annotated[
        bool,
        typer.Option(
            "--decoding-only",
            help="Replay, and encode only each slot's first window: all time is decoding.",
        ),
    ] = False,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    rounds: Rounds = 3,
    period: Annotated[float, typer.Option(min=1, help="Duration of a measurement, in s.")] = 15.0,
) -> None:
    """Add clients to one target, each of which sends whole recordings one after the other.

    They are sessions of a draft server on the last core. Their draft costs nothing and proposes what the real
    one would, so that only the target, on the first core, is measured. Every text is compared with what the
    target alone wrote.
    """
    levels = parse_levels(sessions or given.choose(QUICK_LEVELS, LEVELS))
    modes = tuple(dict.fromkeys(mode or given.choose(QUICK_MODES, MODES)))
    samples = load_samples(audio)
    if given.quick:
        samples, rounds, period = [sample for sample in samples if sample.fits_one_window][:2], 2, 5.0
    target_core, clients_core = first_two_cores()
    given.print("Recording the pair's text ...")
    limit_threads(1)  # two threads on one core would wait for each other
    trace = record(samples, target=target, draft=draft, options=[OPTIONS])
    with on_cores([clients_core]):
        servers = [TargetSettings(trace, decoding_only, number, target_core) for number in levels]
        recordings = spoken(trace, samples)
        taken = asyncio.run(measure(servers, modes, trace, recordings, rounds, period, given))
    times: dict[tuple[int, int], float] = {}
    memory = [memory_line(taken)]
    gains = [gain_of(taken, *key, seed=given.seed) for key in split_of(taken)]
    if gains:
        with on_cores([target_core]):
            model = WhisperModel(load_checkpoint(trace.target), max(levels))
            held = round(mean(len(each.prompt) + len(each.tokens) / 2 for each in trace.decodings))
            sizes = sizes_needed(gains)
            (times,) = pass_times_s({target: model}, samples[0].recording, held, sizes, PASS_REPEATS).values()
        memory.append(f"Memory of a slot, by its tensors: {model.bytes_per_slot / 1e6:.1f} MB")
    what = f"{target}{', decoding only' if decoding_only else ''}"
    print_table(taken, f"{what}, one core for the target", given.console)
    every = [outcome for outcomes in taken.values() for outcome in outcomes]
    figures: dict[str, Any] = {
        "cores": {"target": target_core, "clients": clients_core},
        "samples": {sample.name: sample.duration_s for sample in samples},
        "memory": memory,
        "pass_s": {f"{rows} x {width}": seconds for (rows, width), seconds in times.items()},
        "gains": [asdict(gain) for gain in gains],
        "outcomes": [outcome.facts for outcome in every],
    }
    laws = [predicted(figures, gain) for gain in figures["gains"]]
    for line in filter(None, memory):
        given.print(line)
    for gain, law in zip(gains, laws, strict=True):
        given.print(
            f"{gain.arm}, {gain.num_sessions} sessions: decoding gained {gain.decoding}, {law:.2f} by the "
            f"law; the whole service gained {gain.whole}."
        )
    wrong = sorted({line for each in every for line in (*each.counts.differences, *each.counts.failures)})
    models = {"target": what, "draft": "free", "text of": [target, draft]}
    given.end(models, figures, find_bars(gains, laws), wrong)


def spoken(trace: Trace, samples: Sequence[Sample]) -> list[Spoken]:
    windows: dict[str, list[tuple[int, ...]]] = {sample.name: [] for sample in samples}
    for decoding in sorted(trace.decodings, key=lambda decoding: decoding.start_frame):
        windows[decoding.recording].append(decoding.tokens)
    return [
        Spoken(
            sample.name,
            sample.pcm,
            DecodingOptions.greedy(language="en", log_mel_max=sample.log_mel_max),
            windows[sample.name],
        )
        for sample in samples
    ]


async def measure(
    servers: Sequence[TargetSettings],
    modes: Sequence[Mode],
    trace: Trace,
    recordings: Sequence[Spoken],
    rounds: int,
    period_s: float,
    given: Program,
) -> Outcomes:
    """Measure each level on a server with as many slots, in rounds with the modes in random order."""
    random = Random(given.seed)
    taken: dict[tuple[Mode, int], list[Outcome]] = {
        (mode, settings.num_slots): [] for settings in servers for mode in modes
    }

    async def run(server: ForkedServer, mode: Mode, num_sessions: int, number: int) -> Outcome:
        start_s = time.monotonic() + LEAD_S
        begin_s = start_s + period_s / 2
        end_s = begin_s + period_s
        numbers = range(num_sessions)
        load = Load(server.address, mode, numbers, None, given.seed + number, start_s, begin_s, end_s)
        running = asyncio.create_task(run_clients(load, trace, recordings))
        await asyncio.sleep(begin_s - time.monotonic())
        before = await server.probe(*Usage.__slots__)
        await asyncio.sleep(end_s - time.monotonic())
        after = await server.probe(*Usage.__slots__, "resident_bytes")
        resident_mb = after.pop("resident_bytes") / 1e6
        usage = Usage(**after) - Usage(**before)
        return Outcome(mode, num_sessions, period_s, await running, usage, resident_mb)

    for settings in servers:
        server = ForkedServer(serve_target, settings)
        try:
            await server.ready()
            for number in range(rounds):
                for mode in random.sample(modes, len(modes)):
                    given.print(f"{settings.num_slots} sessions, round {number + 1}: {mode}", style="dim")
                    outcome = await run(server, mode, settings.num_slots, number)
                    taken[mode, settings.num_slots].append(outcome)
        finally:
            await server.kill()
    return taken


def split_of(rounds: Outcomes) -> list[tuple[Mode, int]]:
    return [(mode, n) for mode, n in rounds if mode.drafts and (Mode.TARGET_ONLY, n) in rounds]


def sizes_needed(gains: Sequence[Gain]) -> list[tuple[int, int]]:
    """Return the sizes, as (sessions, tokens of each), whose times predict the gains."""
    sizes: set[tuple[int, int]] = set()
    for gain in gains:
        alone, split = gain.batch_sizes
        for around in ((alone, 1.0), (alone, 1 + gain.width), (split, 1 + gain.width)):
            sizes.update(product(*({max(1, floor(value)), max(1, ceil(value))} for value in around)))
    return sorted(sizes)


def gain_of(rounds: Outcomes, mode: Mode, num_sessions: int, *, seed: int) -> Gain:
    split, alone = rounds[mode, num_sessions], rounds[Mode.TARGET_ONLY, num_sessions]

    def ratio(value: Callable[[Outcome], float]) -> Ratio:
        return ratio_of_medians([value(one) for one in split], [value(one) for one in alone], seed=seed)

    alone_size, split_size = (_median(each, lambda one: one.usage.batch_size) for each in (alone, split))
    return Gain(
        mode.value,
        num_sessions,
        width=_median(split, lambda one: one.width),
        batch_sizes=(alone_size, split_size),
        decoding=ratio(lambda one: one.tokens_per(one.usage.decode_s)),
        whole=ratio(lambda one: one.tokens_per_s),
    )


def find_bars(gains: Sequence[Gain], laws: Sequence[float]) -> list[Bar]:
    """Hold the gains nearest to eight sessions, by the lower ends of their intervals, against the law."""
    nearest = min((abs(gain.num_sessions - JUDGED_SESSIONS) for gain in gains), default=0)
    return [
        Bar(
            f"{gain.arm}, {gain.num_sessions} sessions: decoding, predicted gain over the measured",
            law / gain.decoding.low,
            round(1 / OF_PREDICTED, 3),
            f"{law:.2f} over {gain.decoding}",
        )
        for gain, law in zip(gains, laws, strict=True)
        if abs(gain.num_sessions - JUDGED_SESSIONS) == nearest
    ]


def memory_line(rounds: Outcomes) -> str:
    points = [(one.num_sessions, one.resident_mb) for outcomes in rounds.values() for one in outcomes]
    numbers, resident_mb = zip(*points, strict=True)
    if len(set(numbers)) < 2:
        return ""
    return f"Memory of one more session: {np.polyfit(numbers, resident_mb, 1)[0]:.1f} MB"


def print_table(rounds: Outcomes, title: str, console: Console) -> None:
    columns = ("sessions", "tokens/s (quartiles)", "/ target-only", "tokens/pass", "sessions/forward")
    table = Table("mode", *columns, "target", "encoder", "clients", "MB", title=title)
    for (mode, number), outcomes in rounds.items():
        values = [outcome.tokens_per_s for outcome in outcomes]
        alone = [outcome.tokens_per_s for outcome in rounds.get((Mode.TARGET_ONLY, number), ())]
        middle = sorted(outcomes, key=lambda outcome: outcome.tokens_per_s)[len(outcomes) // 2]
        table.add_row(
            mode,
            str(number),
            f"{spread(values):.1f}",
            f"{median(values) / median(alone):.2f}" if alone and median(alone) else "",
            f"{middle.counts.num_tokens / max(1, middle.counts.num_passes):.2f}",
            f"{middle.usage.batch_size:.2f}",
            f"{middle.usage.cpu_ns / 1e9 / middle.period_s:.0%}",
            f"{middle.usage.encode_share:.0%}",
            f"{middle.counts.cpu_s / middle.period_s:.0%}",
            f"{middle.resident_mb:.0f}",
        )
    console.print(table)


def _median(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    return median(map(value, outcomes))
