"""Draw checkpoints with random values in their files, recordings and options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import WhisperForConditionalGeneration

from experiments.common.models.checkpoints import Shape, build_model, build_tokenizer
from experiments.exactness.cases import PROMPT
from experiments.exactness.fuzz.values import (
    ABSENT,
    GENERATION,
    NO_FILE,
    WEIGHTS,
    Value,
    values,
)
from experiments.exactness.matrix import SPLITS
from experiments.exactness.prepared import tilt
from specwhisper.options import DecodingOptions, Task, WordTimes
from specwhisper.types import Mode

MOST_VALUES = 4  # of one checkpoint
# Without timestamp rules transformers may round the ends of segments by up to 20 ms, but not at these.
LENGTHS_S, UNTIMED_LENGTHS_S = (0.5, 3.0, 12.0, 29.99, 31.0, 44.0), (0.5, 3.0, 29.99, 30.0)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A checkpoint, how it is called, and which pair decodes it.

    Attributes
    ----------
    is_tied : whether the projection to logits is the embedding.
    num_spare : tokens of the embedding after the last timestamp.
    end_logit, time_logit : as :class:`experiments.exactness.cases.Case` has them.
    """

    name: str
    shape: Shape
    values: tuple[Value, ...]
    options: DecodingOptions
    length_s: float
    split: tuple[Mode, int]
    is_tied: bool
    num_spare: int
    end_logit: float
    time_logit: float

    def __str__(self) -> str:
        changed = ", ".join(value.name for value in self.values)
        named = {key: value for key, value in vars_of(self.options).items() if value}
        return f"{self.name} ({changed}; {self.length_s:g} s; {named})"

    def save(self, folder: Path) -> None:
        """Save the checkpoint."""
        model, _ = build_model(self.shape)
        tilt(model, end_logit=self.end_logit, time_logit=self.time_logit)
        if self.num_spare:
            _widen(model, self.num_spare)
        if not self.is_tied:
            model.config.tie_word_embeddings = False
            noise = torch.randn_like(model.proj_out.weight) * 0.02
            model.proj_out.weight = nn.Parameter(model.proj_out.weight.detach() + noise)
        model.save_pretrained(folder)
        build_tokenizer(self.shape).save_pretrained(folder)
        for value in self.values:
            _apply(value, folder)


def drawn(count: int, seed: int, first: int = 0) -> Iterator[Drawn]:
    """Yield cases; each value is in one of them before any comes again."""
    number_of_values = len(all_values())
    order = list(range(number_of_values))
    Random(seed).shuffle(order)
    for number in range(first, first + count):
        yield _draw(number, order[number % number_of_values], Random(f"{seed} {number}"))


@cache
def all_values() -> tuple[Value, ...]:
    """Return all values; all shapes that are drawn have the same special tokens."""
    model, _ = build_model(Shape(d_model=16, heads=1, decoder_layers=1))
    return tuple(values(model.generation_config.to_dict()))


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
    return Drawn(
        f"fuzz {number}",
        shape,
        chosen,
        options,
        random.choice(LENGTHS_S if options.timestamps else UNTIMED_LENGTHS_S),
        random.choice(SPLITS),
        is_tied=random.random() < 0.8,
        num_spare=random.choice((0, 0, 3)),
        end_logit=random.choice((0.5, 2.0, 3.5)),
        time_logit=random.choice((-1.5, -0.5, 0.5)) if options.timestamps else -6.0,
    )


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


def vars_of(options: DecodingOptions) -> dict[str, Any]:
    """Return the options that are not the defaults."""
    default = DecodingOptions.greedy()
    names = (name for name in options.__slots__ if getattr(options, name) != getattr(default, name))
    return {name: getattr(options, name) for name in names}


def _widen(model: WhisperForConditionalGeneration, num_spare: int) -> None:
    embedding = model.model.decoder.embed_tokens.weight
    spare = torch.randn(num_spare, embedding.shape[1]) * 0.1
    widened = nn.Parameter(torch.cat([embedding.detach(), spare]))
    model.model.decoder.embed_tokens.weight = model.proj_out.weight = widened
    model.config.vocab_size = len(widened)


def _apply(value: Value, folder: Path) -> None:
    """Write a value into its file."""
    path = folder / value.file
    if value.key == NO_FILE:
        path.unlink()
        return
    if value.file == WEIGHTS:
        weights = load_file(path)
        weights[value.key].view(-1)[0] = torch.nan
        save_file(weights, path, metadata={"format": "pt"})
        return
    content = json.loads(path.read_text()) | {value.key: value.value}
    path.write_text(json.dumps({key: kept for key, kept in content.items() if kept != ABSENT}))
