"""The matrix: each case decoded by the target alone, by pairs in every mode, and by transformers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import torch
from rich.console import Console
from transformers.utils import logging

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import checkpoint_from_model
from experiments.common.replay.trace import num_equal
from experiments.common.servers.processes import available_cores
from experiments.exactness.cases import (
    DISTIL,
    EN40,
    MANY,
    OPTIONS,
    SHAPES,
    SIDE_BY_SIDE,
    TRUE_SHAPES,
    WHISPERS,
    Case,
)
from experiments.exactness.comparison import differences, unlike
from experiments.exactness.oracle import Steered
from experiments.exactness.prepared import CachingEncoder, DemoPair, Prepared
from specwhisper.model.backends import limit_threads, load_encoder
from specwhisper.model.model import WhisperModel
from specwhisper.types import Mode

# How the pair works in each row: every mode and its gamma, each with another draft.
SPLITS = ((Mode.FULL, 4), (Mode.ONE_PROCESS, 7), (Mode.PIPELINED, 3), (Mode.SYNC, 5))
T = TypeVar("T")
QUICK = ("tiny-like", "no-timestamps", "prompt", "no-speech", "language-detection", "sampling-seed-1")


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be decoded; ``make`` prepares its models, in whichever process decodes it."""

    name: str
    make: Callable[[], Prepared]
    num_slots: int = 2


def rows(*, quick: bool, seed: int, only: str = "") -> list[Row]:
    """Return the rows whose names contain ``only``; another ``seed`` gives other weights and recordings."""

    def row(case: Case, num_slots: int = 2, suffix: str = "") -> Row:
        shape = replace(case.shape, seed=case.shape.seed + 1000 * seed)
        return Row(case.name + suffix, partial(Prepared, replace(case, shape=shape)), num_slots)

    chosen = [row(case) for case in (*MANY, *SHAPES, *OPTIONS, *WHISPERS, *DISTIL)]
    if quick:
        chosen = [each for each in chosen if each.name in QUICK]
    else:
        chosen += [row(SIDE_BY_SIDE, n, f", batch {n}") for n in (1, 4, 8)]
        for timestamps in (True, False):
            options = replace(EN40, max_new_tokens=None, timestamps=timestamps)
            name = f"demo pair, {'with' if timestamps else 'without'} timestamps"
            chosen.append(Row(name, partial(DemoPair, options)))
        chosen += [row(case, 1) for case in TRUE_SHAPES]
    return [each for each in chosen if only in each.name]


@dataclass
class Result:
    """Result of a row: counts of the reference's windows and tokens, and what differs."""

    name: str
    windows: int = 0
    skipped: int = 0  # as silent
    attempts: int = 0  # decodings in all
    tokens: int = 0
    ties: int = 0  # tokens at which the reference was undecided; ours continues from its choice
    acceptance_rate: float = 0.0  # the first pair's
    split_differences: list[str] = field(default_factory=list)  # pairs against target-only
    oracle_differences: list[str] = field(default_factory=list)  # both against transformers


def run_row(row: Row) -> Result:
    made, num_slots = row.make(), row.num_slots
    batch, result = made.batch, Result(row.name)
    for text in batch.oracles:
        result.windows += len(text.windows)
        result.skipped += text.num_skipped
        result.attempts += text.num_attempts
        result.tokens += sum(map(len, text.window_tokens))
        result.ties += sum(len(window.ties) for window in text.windows)
    alone = InlinePair(made.steered(num_slots)).transcribe(batch.pcms, batch.options)
    result.oracle_differences += differences(alone, batch.oracles, made.tokenizer)
    for (mode, gamma), draft in zip(SPLITS, made.drafts, strict=True):
        engine = InlinePair(*made.pair(draft, num_slots), mode=mode, gamma=gamma)
        texts = engine.transcribe(batch.pcms, batch.options)
        result.split_differences += [f"{mode} with {draft}: {line}" for line in unlike(texts, alone)]
        result.oracle_differences += differences(texts, batch.oracles, made.tokenizer)
        if mode is SPLITS[0][0]:
            verified = sum(text.stats.num_verified for text in texts)
            result.acceptance_rate = sum(text.stats.num_accepted for text in texts) / max(1, verified)
    return result


@dataclass
class Reduced:
    name: str
    num_recordings: int = 0
    num_tokens: int = 0  # compared, over all pairs: up to where a recording's two texts part
    margins: list[float] = field(default_factory=list)  # the target's margins where a pair's text differs
    num_from_float32: int = 0  # recordings that the target alone writes otherwise than in float32


def run_reduced(row: Row, dtype: str) -> Reduced:
    """Decode a case by the target alone and by every pair; drafts stay in float32."""
    made, num_slots = row.make(), row.num_slots
    is_int8 = dtype == "int8"
    model = copy.deepcopy(made.model).to(torch.float32 if is_int8 else getattr(torch, dtype))
    tokens = made.checkpoint.vocabulary.tokens
    checkpoint = checkpoint_from_model(model, tokens, name=row.name, tokenizer=made.tokenizer)
    checkpoint = replace(checkpoint, dtype="int8") if is_int8 else checkpoint
    encoder = CachingEncoder(load_encoder(checkpoint))
    pcms, options = made.pcms, made.recording_options  # transformers is not asked
    target = Steered(WhisperModel(checkpoint, num_slots, encoder=encoder), {})
    alone = InlinePair(target).transcribe(pcms, options)
    margins = dict(target.margins)
    exact = InlinePair(made.target(num_slots)).transcribe(pcms, options)
    result = Reduced(row.name, num_recordings=len(alone))
    result.num_from_float32 = sum(
        a.window_tokens != b.window_tokens for a, b in zip(alone, exact, strict=True)
    )
    for (mode, gamma), kind in zip(SPLITS, made.drafts, strict=True):
        engine = InlinePair(target, made.draft(kind, num_slots), mode=mode, gamma=gamma)
        for pcm, ours, theirs in zip(pcms, engine.transcribe(pcms, options), alone, strict=True):
            for a, b in zip(ours.window_tokens, theirs.window_tokens, strict=False):
                same = num_equal(a, b)
                result.num_tokens += same + (a != b)
                if a != b:
                    result.margins.append(margins.get((len(pcm) // 2, b[:same]), math.nan))
                    break
    return result


def decoded(run: Callable[[Any], T], chosen: Sequence[Any], console: Console) -> list[T]:
    spawn = {"mp_context": get_context("spawn"), "initializer": be_quiet_and_single}
    results: list[T] = []
    with ProcessPoolExecutor(len(available_cores()), **spawn) as processes, console.status("") as status:
        for row, result in zip(chosen, processes.map(run, chosen), strict=True):
            results.append(result)
            status.update(f"{len(results)} of {len(chosen)}, last: {row.name}")
    return results


def be_quiet_and_single() -> None:
    """Prepare a process: the models are small, and a second thread would only wait."""
    limit_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
