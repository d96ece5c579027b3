"""``python -m experiments.endpointing``: final text after the end of speech, by when utterances end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from experiments.agents.takes import Take, utterances
from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.servers.processes import first_two_cores, on_cores, running_process
from experiments.endpointing.measures import HESITATION_S, Ended, Outcome, make_take, outcome_of
from experiments.streaming.live_client import DECODING, paced
from specwhisper.errors import SpecWhisperError
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_client.streaming import StreamingClient

NUM_UTTERANCES, NUM_QUICK = 24, 4
MAX_S = 10.0  # of an utterance
MAX_MEDIAN_S, MAX_P95_S = 0.6, 1.0  # of full, at 200 ms of silence
ENDPOINTING = {
    "300 ms, 1 s after less than 4 s": EndpointingOptions(),
    "500 ms": EndpointingOptions(silence_duration_ms=500, short_silence_ms=500),
    "200 ms": EndpointingOptions(silence_duration_ms=200, short_silence_ms=200),
}
ARMS = FULL, TARGET_ONLY, ONE_PROCESS = "full", "target-only", "one process"


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses of the draft server and of one process with both models."""

    split: str
    one_process: str

    def run(self, arm: str, take: Take, endpointing: EndpointingOptions) -> Outcome:
        """Send a take in real time."""
        stream = StreamingClient(
            self.one_process if arm == ONE_PROCESS else self.split,
            DECODING,
            endpointing=endpointing,
            mode=Mode.TARGET_ONLY if arm == TARGET_ONLY else Mode.FULL,
        )
        return outcome_of(take, asyncio.run(_ended(stream, take)))


async def _ended(stream: StreamingClient, take: Take) -> list[Ended]:
    """Return the utterances that a server ends."""
    ended, text = [], ""
    async with stream:
        started_s = time.perf_counter()

        async def speak() -> None:
            async for pcm in paced(take.samples.tobytes(), started_s):
                await stream.send(pcm)
            await stream.finish()

        speaking = asyncio.create_task(speak())
        try:
            async for update in stream:
                for piece in update.segments:
                    text += piece.text
                    if piece.is_utterance_end:
                        ended.append(Ended(time.perf_counter() - started_s, piece.end_s, text.strip()))
                        text = ""
            await speaking
        finally:
            speaking.cancel()
    return ended


@contextmanager
def running_servers(target: str, draft: str) -> Iterator[Servers]:
    """Start the target on one core, draft server and this program on the other, one process on both."""
    first, second = first_two_cores()
    with ExitStack() as stack:

        def start(module: str, *flags: str, cores: list[int]) -> str:
            return stack.enter_context(running_process(module, *flags, cores=cores)).address

        address = start("specwhisper_target_server", "--model", target, cores=[first])
        pair = ("--draft-model", draft)
        split = start("specwhisper_draft_server", "--target", address, *pair, cores=[second])
        one_process = start(
            "specwhisper_draft_server", "--target-model", target, *pair, cores=sorted({first, second})
        )
        stack.enter_context(on_cores([second]))
        yield Servers(split, one_process)


def benchmark(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    num: Annotated[int, typer.Option("--utterances", min=2, help="Utterances of the take.")] = NUM_UTTERANCES,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Time an utterance's last final text after the end of its speech.

    Utterances of the bundled recordings are sent in real time, apart from each other; every second one
    hesitates within. Settings are the defaults, and 500 and 200 ms of silence.
    """
    console, random = open_console(), np.random.default_rng(seed)
    arms, settings = list(ARMS), dict(ENDPOINTING)
    if quick:
        num, arms = NUM_QUICK, [FULL]
        del settings["500 ms"]
    samples = [np.frombuffer(sample.pcm, "<i2") for sample in load_samples(None) if sample.fits_one_window]
    pieces = [piece for each in samples for piece in utterances(each) if len(piece) <= MAX_S * SAMPLE_RATE]
    take = make_take(pieces, num, random)
    found: dict[str, dict[str, Outcome]] = {name: {} for name in settings}
    plan = [(name, arm) for name in settings for arm in arms]
    try:
        with running_servers(target, draft) as servers:
            for index in random.permutation(len(plan)):
                name, arm = plan[index]
                found[name][arm] = servers.run(arm, take, settings[name])
    except SpecWhisperError as error:
        sys.exit(f"experiments.endpointing: {error}")
    table = Table(
        title=f"Last final text after the end of speech, {num} utterances; {num // 2} of them with a pause "
        f"of {HESITATION_S:g} s within",
        title_justify="left",
    )
    for column in ("silence that ends", "arm", "median, s", "p95, s", "ended within", "other text ¹"):
        table.add_column(column)
    reference = found[next(iter(settings))][TARGET_ONLY if TARGET_ONLY in arms else FULL]
    for name in settings:
        for arm in arms:
            outcome = found[name][arm]
            table.add_row(
                name,
                arm,
                *(f"{outcome.quantile_s(share):.2f}" for share in (0.5, 0.95)),
                f"{outcome.num_cut} of {num}",
                f"{outcome.num_unlike(reference)} of {num}",
            )
    console.print(table)
    console.print("¹ than target-only with the first setting; with --quick, than the first row", style="dim")
    full = found["200 ms"][FULL]
    median_s, p95_s = full.quantile_s(0.5), full.quantile_s(0.95)
    bars = [
        Bar("full at 200 ms, median in s", median_s, MAX_MEDIAN_S + 1e-9, f"{median_s:.2f}"),
        Bar("full at 200 ms, p95 in s", p95_s, MAX_P95_S + 1e-9, f"{p95_s:.2f}"),
    ]
    if json is not None:
        figures = {name: {arm: one.facts for arm, one in by_arm.items()} for name, by_arm in found.items()}
        write_json(
            json,
            models={"target": target, "draft": draft},
            figures={"figures": figures, "settings": {name: asdict(one) for name, one in settings.items()}},
        )
    if not print_bars(bars, console) and check:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(benchmark)
