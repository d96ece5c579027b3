"""``sizing``: memory of models, sessions and hints, and sessions by the memory of a GPU."""

from __future__ import annotations

import json as json_format
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Annotated, NamedTuple

import torch
import typer
from transformers import WhisperForConditionalGeneration

from experiments.common.audio.samples import BUNDLED
from experiments.common.models.checkpoints import PUBLISHED, Shape, config_of
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.speculation.hints import MAX_TOKENS
from specwhisper.transcription.hints import HintBuilder

SHAPES = PUBLISHED | {"distil-large-v3": replace(PUBLISHED["large-v3"], decoder_layers=2)}
GIB = 2**30
GPUS = [16.0, 24.0, 48.0, 80.0, 141.0]  # GiB
RESERVED_BYTES = 3 * GIB  # for everything but weights and slots
AUDIO_POSITIONS = 1_500
# Words and special tokens; multilingual checkpoints have one more language since large-v3.
VOCABULARY, END = 51_865, 50_257
BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
WINDOW_TOKENS = 200
OTHER_TEXT = "one two three four five six seven eight nine ten"


def sizing(
    gpu: Annotated[list[float], typer.Option(help="Memory in GiB; repeat for more.")] = GPUS,
    dtype: Annotated[str, typer.Option(help=f"Of {', '.join(BYTES)}.")] = "float16",
) -> None:
    """Print a table in Markdown, and what the longest hint takes."""
    print("| model | weights, MB | a slot, MB |", *(f"{size:g} GiB |" for size in gpu))
    print("|---|---|---|" + "---|" * len(gpu))
    for name, shape in SHAPES.items():
        held = [num_sessions(size * GIB, shape, dtype, reserved_bytes=RESERVED_BYTES) for size in gpu]
        weights_mb = num_weights(shape) * BYTES[dtype] / 1e6
        slot_mb = slot_bytes(shape, dtype) / 1e6
        print(f"| {name} | {weights_mb:,.0f} | {slot_mb:.1f} |", *(f"{n:,} |" for n in held))
    hint = measure_hint()
    print(
        f"\nA hint of {MAX_HINT_BYTES:,} bytes takes {hint.tokens / 1e6:.1f} MB of main memory a session, "
        f"and {hint.searched / 1e6:.0f} MB once all of it was searched."
    )


@cache
def num_weights(shape: Shape) -> int:
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config_of(shape, END, VOCABULARY + shape.cantonese))
    return sum(weight.numel() for weight in model.parameters())


def slot_bytes(shape: Shape, dtype: str) -> int:
    """Return a session's memory: keys and values of its tokens and of its encoded window."""
    position_bytes = shape.d_model * BYTES[dtype]
    return 2 * (shape.max_target_positions + AUDIO_POSITIONS) * position_bytes * shape.decoder_layers


def num_sessions(memory_bytes: float, shape: Shape, dtype: str, *, reserved_bytes: float) -> int:
    """Return the number of sessions that fit beside the weights; one slot is for padding."""
    free = memory_bytes - reserved_bytes - num_weights(shape) * BYTES[dtype]
    return max(0, int(free // slot_bytes(shape, dtype)) - 1)


class HintMemory(NamedTuple):
    """Bytes of main memory that the longest hint takes.

    Attributes
    ----------
    tokens : with all of its tokens.
    searched : once the audio says something else, so that all of the text was searched.
    """

    tokens: int
    searched: int


def measure_hint(seed: int = 0) -> HintMemory:
    """Measure a hint of as many bytes as one may have: the bundled recordings' words in random order."""
    checkpoint = load_checkpoint("demo-target")
    tokenizer = checkpoint.tokenizer
    assert tokenizer is not None  # it is bundled

    def tokenize(text: str, *, after_space: bool = True) -> list[int]:
        return list(tokenizer.encode(" " * after_space + text))

    def follow(tokens: Sequence[int]) -> None:
        for token in tokens:
            hint.follow(token)

    lines = (BUNDLED / "metadata.jsonl").read_text("utf-8").splitlines()
    words = [word for line in lines for word in json_format.loads(line)["text"].split()]
    text = " ".join(Random(seed).choices(words, k=MAX_HINT_BYTES))[:MAX_HINT_BYTES]
    hints = HintBuilder(checkpoint.vocabulary, tokenize)
    spoken, other = tokenize(text)[:MAX_TOKENS], tokenize(OTHER_TEXT)
    for token in set(spoken) | set(other):  # words are cached by the vocabulary
        checkpoint.vocabulary.word_of(token)
    tracemalloc.start()
    try:
        hint = hints.script(text)
        for start in range(0, len(spoken), WINDOW_TOKENS):
            window = spoken[start : start + WINDOW_TOKENS]
            follow(window)
            hint.open_window(len(window))
        tokens, _ = tracemalloc.get_traced_memory()
        hint.open_later(())
        follow(other)
        searched, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return HintMemory(tokens, searched)
