"""Checkpoints with random values in their files, decoded by transformers and by us, with random options."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from logging.handlers import BufferingHandler
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import WhisperForConditionalGeneration, WhisperTokenizer

from experiments.common.bench.report import Bar, none
from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_model, build_tokenizer
from experiments.common.models.scripted import weights_in_memory
from experiments.exactness.cases import PROMPT, UNTIMED_LENGTHS_S, Case
from experiments.exactness.comparison import differences, unlike
from experiments.exactness.matrix import SPLITS
from experiments.exactness.oracle import OracleText, Steered, transcribe
from experiments.exactness.prepared import is_long, recording, tilt
from experiments.exactness.values import ABSENT, GENERATION, NO_FILE, WEIGHTS, Value, values
from specwhisper.audio.recording import log_mel_max
from specwhisper.errors import CheckpointError, SpecWhisperError, UnsupportedOption
from specwhisper.model.backends import library_for
from specwhisper.model.checkpoints import generation
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions, Task, WordTimes
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode

MOST_VALUES = 4  # most values of one checkpoint
# Without timestamp rules transformers may round the ends of segments by up to 20 ms, but not at the others.
LENGTHS_S = (0.5, 3.0, 12.0, 29.99, 31.0, 44.0)
CLEAR = (CheckpointError, UnsupportedOption)  # errors that name the file or the option, and what to do


@dataclass(frozen=True, eq=False)
class Drawn:
    """A checkpoint with values in its files, and which pair decodes it."""

    case: Case
    values: tuple[Value, ...]
    split: tuple[Mode, int]
    is_tied: bool  # the projection to logits is the embedding
    num_spare: int  # tokens of the embedding after the last timestamp

    @property
    def name(self) -> str:
        return self.case.name

    def __str__(self) -> str:
        options, default = self.case.options, DecodingOptions.greedy()
        named = {
            name: getattr(options, name)
            for name in options.__slots__
            if getattr(options, name) != getattr(default, name)
        }
        changed = ", ".join(value.name for value in self.values)
        return f"{self.name} ({changed}; {self.case.lengths_s[0]:g} s; {named})"

    def save(self, folder: Path) -> None:
        model, _ = build_model(self.case.shape)
        tilt(model, end_logit=self.case.end_logit, time_logit=self.case.time_logit)
        if self.num_spare:
            embedding = model.model.decoder.embed_tokens.weight
            spare = torch.randn(self.num_spare, embedding.shape[1]) * 0.1
            widened = nn.Parameter(torch.cat([embedding.detach(), spare]))
            model.model.decoder.embed_tokens.weight = model.proj_out.weight = widened
            model.config.vocab_size = len(widened)
        if not self.is_tied:
            model.config.tie_word_embeddings = False
            noise = torch.randn_like(model.proj_out.weight) * 0.02
            model.proj_out.weight = nn.Parameter(model.proj_out.weight.detach() + noise)
        model.save_pretrained(folder)
        build_tokenizer(self.case.shape).save_pretrained(folder)
        for value in self.values:
            _apply(value, folder)


def _apply(value: Value, folder: Path) -> None:
    path = folder / value.file
    if value.key == NO_FILE:
        path.unlink()
    elif value.file == WEIGHTS:
        weights = load_file(path)
        weights[value.key].view(-1)[0] = torch.nan
        save_file(weights, path, metadata={"format": "pt"})
    else:
        content = json.loads(path.read_text()) | {value.key: value.value}
        path.write_text(json.dumps({key: kept for key, kept in content.items() if kept != ABSENT}))


@cache
def all_values() -> tuple[Value, ...]:
    """Return all values; all shapes that are drawn have the same special tokens."""
    model, _ = build_model(Shape(d_model=16, heads=1, decoder_layers=1))
    return tuple(values(model.generation_config.to_dict()))


def drawn(count: int, seed: int, first: int = 0) -> Iterator[Drawn]:
    """Yield cases; each value is in one of them before any comes again."""
    order = list(range(len(all_values())))
    Random(seed).shuffle(order)
    for number in range(first, first + count):
        yield _draw(number, order[number % len(order)], Random(f"{seed} {number}"))


def _draw(number: int, wanted: int, random: Random) -> Drawn:
    shape = Shape(
        num_mel_bins=random.choice((80, 128)),
        d_model=random.choice((48, 64)),
        heads=2,
        encoder_layers=random.choice((1, 2)),
        decoder_layers=random.choice((1, 2, 3)),
        max_target_positions=random.choice((24, 40, 60)),
        max_initial_timestamp=random.choice((None, 50)),
        seed=random.randrange(1_000_000),
    )
    options, chosen = _options(random), _some_values(wanted, random)
    keys = {value.key for value in chosen}
    if options.initial_prompt and "prev_sot_token_id" in keys:
        # Without it transformers writes <|startofprev|> twice where previous text follows the prompt.
        options = replace(options, condition_on_previous_text=False)
    if "forced_decoder_ids" in keys:  # they hold only where the caller names no task
        options = replace(options, task=Task.TRANSCRIBE)
    length_s = random.choice(LENGTHS_S if options.timestamps else UNTIMED_LENGTHS_S)
    split, is_tied, num_spare = random.choice(SPLITS), random.random() < 0.8, random.choice((0, 0, 3))
    case = Case(
        f"fuzz {number}",
        shape,
        (length_s,),
        options,
        end_logit=random.choice((0.5, 2.0, 3.5)),
        time_logit=random.choice((-1.5, -0.5, 0.5)) if options.timestamps else -6.0,
    )
    return Drawn(case, chosen, split, is_tied, num_spare)


def _some_values(wanted: int, random: Random) -> tuple[Value, ...]:
    """Return a value and a few others of other keys, which must be taken; without a file it has none."""
    chosen = [all_values()[wanted]]
    others = [value for value in all_values() if not value.refused and value.key != NO_FILE]
    while len(chosen) < random.randint(1, MOST_VALUES):
        value = random.choice(others)
        if all(value.key != other.key for other in chosen):
            chosen.append(value)
    if chosen[0].key == NO_FILE:
        chosen = [value for value in chosen if value.file != GENERATION or value.key == NO_FILE]
    return tuple(chosen)


def _options(random: Random) -> DecodingOptions:
    timestamps = random.random() < 0.7
    options = DecodingOptions.greedy(
        language=random.choice((None, "en", "en", "de")),
        task=random.choice((Task.TRANSCRIBE, Task.TRANSCRIBE, Task.TRANSLATE)),
        timestamps=timestamps,
        word_timestamps=random.random() < 0.3,
        word_times=WordTimes.MODEL,
        max_new_tokens=random.choice((None, None, None, 6, 15)),
        condition_on_previous_text=timestamps and random.random() < 0.3,
        initial_prompt=PROMPT if random.random() < 0.2 else "",
        temperatures=random.choice(((0.0,), (0.0,), (0.7,))),
        seed=random.randrange(9),
    )
    if options.initial_prompt and random.random() < 0.5:
        return replace(options, initial_prompt="", hotwords="fox dog", condition_on_previous_text=timestamps)
    if timestamps and random.random() < 0.2:
        return replace(options, temperatures=(0.0, 0.6), logprob_threshold=-2.0, no_speech_threshold=0.01)
    return options


class Outcome(StrEnum):
    SAME = "same"  # every text equals transformers'
    REFUSED = "refused"  # one of our errors refuses it, as it must
    OURS_ONLY = "ours only"  # transformers raises an error or never ends; our texts are equal to each other
    DIFFERENT = "different"  # a text differs, or a value is not refused that must be
    RAW_ERROR = "raw error"  # another error than the project's own


@dataclass
class Fuzzed:
    """The outcome of a case; ``notes`` describe what is wrong, or the error that was expected."""

    name: str
    outcome: Outcome
    num_tokens: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        return self.outcome in (Outcome.DIFFERENT, Outcome.RAW_ERROR)


def bars_of_fuzzed(results: list[Fuzzed]) -> list[Bar]:
    names = {
        Outcome.DIFFERENT: "checkpoints with random configs that differ",
        Outcome.RAW_ERROR: "raw errors of checkpoints with random configs",
    }
    counts = {outcome: sum(each.outcome is outcome for each in results) for outcome in names}
    return [none(names[outcome], count, len(results)) for outcome, count in counts.items()]


def run_drawn(drawn: Drawn) -> Fuzzed:
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        drawn.save(folder)
        pcm = recording(drawn.case.shape.seed, drawn.case.lengths_s[0])
        options = drawn.case.options
        if is_long(pcm):
            options = replace(options, log_mel_max=log_mel_max([pcm]))
        theirs = _transformers(drawn, folder, pcm, options)
        try:
            return _judged(drawn, folder, pcm, options, theirs)
        except CLEAR as error:
            return judged_refusal(drawn, error, theirs)
        except Exception as error:
            kind = Outcome.DIFFERENT if isinstance(error, SpecWhisperError) else Outcome.RAW_ERROR
            return Fuzzed(str(drawn), kind, notes=[f"{type(error).__name__}: {error}"])


def _judged(
    drawn: Drawn, folder: Path, pcm: bytes, options: DecodingOptions, theirs: OracleText | Exception
) -> Fuzzed:
    """Decode by us and compare; our own error is raised."""
    with _warnings() as warned:
        checkpoint = load_checkpoint(str(folder))
    result = Fuzzed(str(drawn), Outcome.SAME)
    oracles = {len(pcm) // 2: theirs} if isinstance(theirs, OracleText) else {}

    def ours(
        draft: WhisperModel | None = None, device_map: dict[str, int | str] | None = None
    ) -> list[Transcription]:
        target = Steered(WhisperModel(checkpoint, 1, device_map=device_map), oracles)
        mode, gamma = drawn.split
        engine = InlinePair(target, draft, mode=mode, gamma=gamma, max_new_tokens=checkpoint.max_new_tokens)
        return engine.transcribe([pcm], options)

    alone = ours()
    result.num_tokens = sum(map(len, alone[0].window_tokens))
    result.notes += unlike(ours(_noisy(checkpoint)), alone)
    texts = [alone] if library_for(checkpoint) == "pytorch" else [alone, ours(device_map={"": "cpu"})]
    if isinstance(theirs, OracleText):
        tokenizer = WhisperTokenizer.from_pretrained(folder)
        result.notes += [line for text in texts for line in differences(text, [theirs], tokenizer)]
    for value in drawn.values:
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


def judged_refusal(drawn: Drawn, error: SpecWhisperError, theirs: OracleText | Exception) -> Fuzzed:
    """Judge our own error: the values must allow it, or transformers must raise one too."""
    patterns = [pattern for value in drawn.values for pattern in (value.refused, value.may_refuse) if pattern]
    is_expected = any(re.search(pattern, str(error)) for pattern in patterns)
    must = any(value.refused for value in drawn.values)
    is_fine = is_expected if must else is_expected or isinstance(theirs, Exception)
    outcome = Outcome.REFUSED if is_fine else Outcome.DIFFERENT
    return Fuzzed(str(drawn), outcome, notes=[f"{type(error).__name__}: {error}"])


def _transformers(drawn: Drawn, folder: Path, pcm: bytes, options: DecodingOptions) -> OracleText | Exception:
    try:
        model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        for value in drawn.values:
            for key, neutral in value.neutral.items():
                setattr(model.generation_config, key, neutral)
        tokenizer = WhisperTokenizer.from_pretrained(folder)
        return transcribe(model, pcm, options, tokenizer=tokenizer, max_windows=20)
    except Exception as error:  # whatever it raises is the result
        return error


def _noisy(checkpoint: Checkpoint) -> WhisperModel:
    random = np.random.default_rng(0)
    noisy = {
        name: weight + random.normal(0, 0.005, weight.shape).astype(np.float32)
        for name, weight in checkpoint.weights.items()
    }
    return WhisperModel(replace(checkpoint, name="noisy", weights=weights_in_memory(noisy)), 1)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what is logged about generation configs, and print none of it."""
    handler, lines, logger = BufferingHandler(1_000), list[str](), logging.getLogger(generation.__name__)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield lines
    finally:
        lines += (record.getMessage() for record in handler.buffer)
        logger.removeHandler(handler)
        logger.propagate = True
