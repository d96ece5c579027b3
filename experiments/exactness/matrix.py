"""One row of the matrix: a case decoded by the target alone, by the pair, and by transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.exactness.comparison import differences
from experiments.exactness.oracle import OracleText, TooManyWindows
from experiments.exactness.prepared import Prepared
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode

# How the pair works in each row: every mode and its gamma, each with another draft.
SPLITS = ((Mode.FULL, 4), (Mode.ONE_PROCESS, 7), (Mode.PIPELINED, 3), (Mode.SYNC, 5))


@dataclass
class Result:
    """Result of a row.

    Attributes
    ----------
    windows, skipped, attempts : of the reference: kept, skipped as silent, and decodings in all.
    acceptance_rate, num_hinted : of the first pair.
    ties : tokens at which the reference itself was undecided; ours continues from its choice.
    split_differences : pairs against target-only; ``oracle_differences`` : both against transformers.
    assisted : "same", "differs", or what transformers' assisted generation raises.
    """

    name: str
    windows: int = 0
    skipped: int = 0
    attempts: int = 0
    tokens: int = 0
    ties: int = 0
    acceptance_rate: float = 0.0
    num_hinted: int = 0
    split_differences: list[str] = field(default_factory=list)
    oracle_differences: list[str] = field(default_factory=list)
    assisted: str = "not run"


def run_row(name: str, made: Prepared, num_slots: int) -> Result:
    """Decode a case in every way and compare."""
    batch = made.batch
    result = Result(name)
    for text in batch.oracles:
        result.windows += len(text.windows)
        result.skipped += text.num_skipped
        result.attempts += text.num_attempts
        result.tokens += sum(len(window.tokens) for window in text.windows)
        result.ties += sum(len(window.ties) for window in text.windows)
    alone = InlinePair(made.steered(num_slots)).transcribe(batch.pcms, batch.options)
    result.oracle_differences += differences(alone, batch.oracles, made.tokenizer)
    verified = accepted = 0
    for (mode, gamma), draft in zip(SPLITS, made.drafts, strict=True):
        engine = InlinePair(*made.pair(draft, num_slots), mode=mode, gamma=gamma)
        texts = engine.transcribe(batch.pcms, batch.options)
        result.split_differences += [f"{mode} with {draft}: {line}" for line in unlike(texts, alone)]
        result.oracle_differences += differences(texts, batch.oracles, made.tokenizer)
        if mode is SPLITS[0][0]:
            verified = sum(text.stats.num_verified for text in texts)
            accepted = sum(text.stats.num_accepted for text in texts)
            result.num_hinted = sum(text.stats.num_hinted for text in texts)
    result.acceptance_rate = accepted / verified if verified else 0.0
    if made.assisted:
        result.assisted = run_assisted(made, batch.oracles)
    return result


def unlike(texts: Sequence[Transcription], expected: Sequence[Transcription]) -> list[str]:
    """Describe where two decodings of the same recordings differ, with words and their times."""
    found = []
    for i, (ours, theirs) in enumerate(zip(texts, expected, strict=True)):
        if ours.window_tokens != theirs.window_tokens:
            found.append(f"recording {i} has other tokens")
        elif _without_probabilities(ours) != _without_probabilities(theirs):
            found.append(f"recording {i} has other segments")
    return found


def run_assisted(made: Prepared, oracles: Sequence[OracleText]) -> str:
    """Run transformers' assisted generation and compare it with the oracle."""
    try:
        texts = [
            made.oracle(pcm, options, made.assistant)
            for pcm, options in zip(made.batch.pcms, made.batch.options, strict=True)
        ]
    except TooManyWindows as error:
        return f"differs: {error}"
    except Exception as error:  # whatever it raises is the result
        return f"raises {type(error).__name__}"
    same = [text.window_tokens for text in texts] == [text.window_tokens for text in oracles]
    return "same" if same else "differs"


def facts(result: Result) -> dict[str, Any]:
    """Return a row as JSON values."""
    return {**result.__dict__}


def _without_probabilities(text: Transcription) -> list[tuple[Any, ...]]:
    """Return segments without probabilities, whose last digits depend on the width of a forward pass."""
    return [
        (s.start_s, s.end_s, s.tokens, [(w.start_s, w.end_s, w.text) for w in s.words]) for s in text.segments
    ]
