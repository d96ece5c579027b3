"""Decode a drawn checkpoint by transformers and by us, through its files, and judge the outcome."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import WhisperForConditionalGeneration, WhisperTokenizer

from experiments.common.models.in_memory import weights_in_memory
from experiments.exactness.comparison import differences
from experiments.exactness.fuzz.drawing import Drawn
from experiments.exactness.matrix import unlike
from experiments.exactness.oracle import OracleText, transcribe
from experiments.exactness.prepared import is_long, recording
from experiments.exactness.steering import Steered
from specwhisper.audio.scan import log_mel_max
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.errors import CheckpointError, SpecWhisperError, UnsupportedOption
from specwhisper.model.backends import Library, library_for
from specwhisper.model.checkpoints import generation
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription

CLEAR = (CheckpointError, UnsupportedOption)  # errors that name the file or the option, and what to do


class Outcome(StrEnum):
    """The outcome of a case."""

    SAME = "same"
    REFUSED = "refused"  # by one of our errors, as it must be
    OURS_ONLY = "ours only"  # transformers raises an error or never ends
    DIFFERENT = "different"
    RAW_ERROR = "raw error"


@dataclass
class Fuzzed:
    """The outcome of a case; ``notes`` describe what is wrong, or the error that was expected."""

    name: str
    outcome: Outcome
    num_tokens: int = 0
    notes: list[str] = field(default_factory=list)


def run_drawn(case: Drawn) -> Fuzzed:
    """Decode a case in every way and judge it."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        case.save(folder)
        pcm = recording(case.shape.seed, case.length_s)
        options = case.options
        if is_long(pcm):
            options = replace(options, log_mel_max=log_mel_max([pcm]))
        theirs = _transformers(case, folder, pcm, options)
        try:
            return _judged(case, folder, pcm, options, theirs)
        except CLEAR as error:
            return judged_refusal(case, error, theirs)
        except Exception as error:
            kind = Outcome.DIFFERENT if isinstance(error, SpecWhisperError) else Outcome.RAW_ERROR
            return Fuzzed(str(case), kind, notes=[f"{type(error).__name__}: {error}"])


def _judged(
    case: Drawn, folder: Path, pcm: bytes, options: DecodingOptions, theirs: OracleText | Exception
) -> Fuzzed:
    """Decode by us and compare; an error of ours is raised."""
    with _warnings() as warned:
        checkpoint = load_checkpoint(str(folder))
    result = Fuzzed(str(case), Outcome.SAME)
    oracles = {len(pcm) // 2: theirs} if isinstance(theirs, OracleText) else {}

    def ours(library: Library | None, draft: WhisperModel | None = None) -> list[Transcription]:
        target = Steered(WhisperModel(checkpoint, 1, library=library), oracles)
        mode, gamma = case.split
        engine = InlinePair(target, draft, mode=mode, gamma=gamma, max_new_tokens=checkpoint.max_new_tokens)
        return engine.transcribe([pcm], options)

    alone = ours(None)
    result.num_tokens = sum(map(len, alone[0].window_tokens))
    result.notes += unlike(ours(None, _noisy(checkpoint)), alone)
    texts = [alone] if library_for(checkpoint) == "pytorch" else [alone, ours("pytorch")]
    if isinstance(theirs, OracleText):
        tokenizer = WhisperTokenizer.from_pretrained(folder)
        result.notes += [line for text in texts for line in differences(text, [theirs], tokenizer)]
    for value in case.values:
        if value.refused:
            result.notes.append(f"{value.name} was not refused")
        if value.neutral and not any(f"sets {value.key}=" in line for line in warned):
            result.notes.append(f"no warning of {value.name}")
    if result.notes:
        result.outcome = Outcome.DIFFERENT
    elif isinstance(theirs, Exception):
        result.outcome = Outcome.OURS_ONLY
        result.notes.append(f"transformers: {type(theirs).__name__}: {theirs}")
    return result


def judged_refusal(case: Drawn, error: SpecWhisperError, theirs: OracleText | Exception) -> Fuzzed:
    """Judge an error of ours: the values must allow it, or transformers must raise one too."""
    patterns = [pattern for value in case.values for pattern in (value.refused, value.may_refuse) if pattern]
    is_expected = any(re.search(pattern, str(error)) for pattern in patterns)
    must = [value.refused for value in case.values if value.refused]
    is_fine = is_expected if must else is_expected or isinstance(theirs, Exception)
    outcome = Outcome.REFUSED if is_fine else Outcome.DIFFERENT
    return Fuzzed(str(case), outcome, notes=[f"{type(error).__name__}: {error}"])


def _transformers(case: Drawn, folder: Path, pcm: bytes, options: DecodingOptions) -> OracleText | Exception:
    """Return transformers' text, or what it raises."""
    try:
        model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        for value in case.values:
            for key, neutral in value.neutral.items():
                setattr(model.generation_config, key, neutral)
        tokenizer = WhisperTokenizer.from_pretrained(folder)
        return transcribe(model, pcm, options, tokenizer=tokenizer, max_windows=20)
    except Exception as error:  # whatever it raises is the result
        return error


def _noisy(checkpoint: Checkpoint) -> WhisperModel:
    """Return a draft: the checkpoint with noise on its weights."""
    random = np.random.default_rng(0)
    noisy = {
        name: weight + random.normal(0, 0.005, weight.shape).astype(np.float32)
        for name, weight in checkpoint.weights.items()
    }
    return WhisperModel(replace(checkpoint, name="noisy", weights=weights_in_memory(noisy)), 1)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what is logged about generation configs, and print none of it."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(generation.__name__)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
