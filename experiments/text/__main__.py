"""``python -m experiments.text``: draft length against top-k for pairs of text models."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.models.llamas import llama, save_llama, shortened
from specwhisper import SpeculativeConfig, SpeculativeLM
from specwhisper.errors import SpecWhisperError
from specwhisper.model.threads import limit_threads

GAMMAS = (5, 10, 20)
TOP_KS = (1, 50)
PROMPTS = (
    "the quick brown fox",
    "she sells sea shells",
    "how much wood would",
    "over the lazy dog the",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A draft length and a top-k; ``speed_ups`` are of each round over the target alone in that round."""

    gamma: int
    top_k: int
    acceptance_rate: float
    tokens_per_forward: float
    speed_ups: list[float]
    is_identical: bool


def text(
    target: Annotated[str | None, typer.Option(help="Hub id or folder. [default: random weights]")] = None,
    draft: Annotated[str | None, typer.Option(help="Hub id or folder with the same tokenizer.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens after each prompt.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Continue prompts with the target alone and with the pair, in turns.

    Every text is compared: with the same seed the pair writes what the target alone does.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    limit_threads(1)
    console = open_console()
    if (target is None) != (draft is None):
        sys.exit("experiments.text: name both --target and --draft, or neither.")
    try:
        with models(target, draft) as (target_folder, draft_folder):
            pair = SpeculativeLM(draft_folder, target_folder, "cpu", batch_size=1)
            alone = SpeculativeLM(None, target_folder, "cpu", batch_size=1)
            rows = measure(pair, alone, 1 if quick else rounds, max_new_tokens, seed)
    except SpecWhisperError as error:
        sys.exit(f"experiments.text: {error}")
    table = Table("gamma", "top-k", "accepted", "tokens per pass", "times as fast", "same text")
    for row in rows:
        fast = f"{median(row.speed_ups):.2f} ({min(row.speed_ups):.2f} to {max(row.speed_ups):.2f})"
        same = "yes" if row.is_identical else "NO"
        accepted = f"{row.acceptance_rate:.0%}"
        table.add_row(str(row.gamma), str(row.top_k), accepted, f"{row.tokens_per_forward:.2f}", fast, same)
    console.print(table)
    num_different = sum(not row.is_identical for row in rows)
    bars = [Bar("rows whose text differs from the target's", num_different, 0.5, str(num_different))]
    if json is not None:
        named = {"target": target or "random weights", "draft": draft or "its first two layers"}
        write_json(
            json, models=named, figures={"rows": list(map(asdict, rows)), "bars": list(map(str, bars))}
        )
    all_hold = print_bars(bars, console) if check else True
    sys.exit(0 if all_hold and not num_different else 1)


@contextmanager
def models(target: str | None, draft: str | None) -> Iterator[tuple[str, str]]:
    """Return the pair that was named, or make one: 12 layers, and of them the first two."""
    if target is not None and draft is not None:
        yield target, draft
        return
    with tempfile.TemporaryDirectory() as folder:
        large = llama(12, 1, width=256, positions=256, scale=0.1)
        small = shortened(large, 2, weight=0.05)
        yield save_llama(large, Path(folder) / "target"), save_llama(small, Path(folder) / "draft")


def measure(
    pair: SpeculativeLM, alone: SpeculativeLM, rounds: int, max_new_tokens: int, seed: int
) -> list[Row]:
    """Take each draft length and top-k in turns with the target alone."""
    rows = []
    for top_k in TOP_KS:
        for gamma in GAMMAS:
            config = SpeculativeConfig(
                gamma=gamma, temperature=0.0 if top_k == 1 else 1.0, top_k=top_k, seed=seed
            )
            pair.config = alone.config = config
            speed_ups, is_identical = [], True
            for _ in range(rounds):
                expected_s, expected = timed(alone, max_new_tokens)
                elapsed_s, written = timed(pair, max_new_tokens)
                speed_ups.append(expected_s / elapsed_s)
                is_identical &= [one.tokens for one in written] == [one.tokens for one in expected]
            counts = written[0].stats
            for completion in written[1:]:
                counts.add(completion.stats)
            rate, tokens_per_forward = counts.acceptance_rate, counts.tokens_per_forward
            rows.append(Row(gamma, top_k, rate, tokens_per_forward, speed_ups, is_identical))
    return rows


def timed(model: SpeculativeLM, max_new_tokens: int) -> tuple[float, list]:
    """Continue every prompt."""
    started_s = time.perf_counter()
    written = [model.generate(prompt, max_new_tokens=max_new_tokens) for prompt in PROMPTS]
    return time.perf_counter() - started_s, written


if __name__ == "__main__":
    typer.run(text)
