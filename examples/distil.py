"""Distil a draft from any Whisper, on recordings of the speech you expect; no texts are needed.

python examples/distil.py --target large-v3 --recordings FOLDER --out FOLDER --language nl --device cuda

The draft keeps the target's encoder and some of its decoder layers, and learns what the target answers. What
it is right about is measured on recordings that it has not heard, before and after.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from transformers import WhisperForConditionalGeneration, WhisperProcessor
from transformers.utils import logging

from specwhisper.audio.decode import decode_file
from specwhisper.evaluation.references import AUDIO_SUFFIXES
from specwhisper.whisper.checkpoint import resolve

WINDOW_SAMPLES = 30 * 16_000
HELD_OUT = 0.1
SAMPLES = Path(str(files("specwhisper"))) / "demo" / "samples"


def windows_of(folder: Path) -> list[np.ndarray]:
    """Cut every recording into windows of at most 30 s."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES):
        samples = np.frombuffer(b"".join(decode_file(path)), "<i2").astype(np.float32) / 32768
        found += [samples[i : i + WINDOW_SAMPLES] for i in range(0, len(samples), WINDOW_SAMPLES)]
    return found


def draft_from(target: WhisperForConditionalGeneration, keep: list[int]) -> WhisperForConditionalGeneration:
    """Copy the target with some of its decoder layers; only the decoder will learn."""
    draft = copy.deepcopy(target)
    layers = draft.model.decoder.layers
    draft.model.decoder.layers = nn.ModuleList([layers[i] for i in keep])
    for place, layer in enumerate(draft.model.decoder.layers):
        layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = place
    draft.config.decoder_layers = len(keep)
    draft.generation_config.alignment_heads = None  # they name layers that are gone
    for parameter in draft.model.encoder.parameters():
        parameter.requires_grad = False
    return draft


class Lesson:
    """A batch of windows: what is heard, what the target writes, and which positions count."""

    def __init__(self, target: Any, processor: Any, windows: list[np.ndarray], asked: dict[str, Any]) -> None:
        heard = processor(windows, sampling_rate=16_000, return_tensors="pt").input_features
        features = heard.to(target.device, target.dtype)
        with torch.no_grad():
            written = target.generate(features, return_timestamps=True, num_beams=1, **asked)
            self.encoded = target.model.encoder(features)
        start, end = target.generation_config.decoder_start_token_id, processor.tokenizer.eos_token_id
        if (written[:, 0] != start).any():  # transformers leaves the prompt out or in, by version
            prompt = processor.tokenizer.prefix_tokens[:-1]
            written = torch.cat([torch.tensor(prompt).expand(len(written), -1).to(written), written], dim=1)
        self.tokens = written
        is_past_end = (written == end).cumsum(1) - (written == end).long() > 0
        is_prompt = (written >= start) & (written < target.generation_config.no_timestamps_token_id)
        self.counts = ~(is_past_end | is_prompt)[:, 1:]

    def logits(self, model: Any) -> Tensor:
        """Give what a model would write at each position that counts, after the target's tokens before it."""
        out = model(encoder_outputs=self.encoded, decoder_input_ids=self.tokens[:, :-1]).logits
        return out[self.counts]


def batches(windows: list[np.ndarray], size: int, random: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """Give the windows in ever new order."""
    while True:
        order = random.permutation(len(windows))
        for i in range(0, len(order), size):
            yield [windows[j] for j in order[i : i + size]]


def agreement(draft: Any, target: Any, lessons: list[Lesson]) -> float:
    """Share of tokens at which the draft would have written the target's."""
    with torch.no_grad():
        same = [lesson.logits(draft).argmax(-1) == lesson.logits(target).argmax(-1) for lesson in lessons]
    return torch.cat(same).float().mean().item()


def distil(
    target: Annotated[str, typer.Option(help="The model whose text it will be.")] = "demo-target",
    recordings: Annotated[Path, typer.Option(help="A folder of recordings.")] = SAMPLES,
    out: Annotated[Path | None, typer.Option(help="Where the draft goes.")] = None,
    language: Annotated[str, typer.Option(help="Of the recordings.")] = "en",
    keep: Annotated[list[int], typer.Option(help="A decoder layer to keep; say it for each.")] = [0, -1],  # noqa: B006
    steps: Annotated[int, typer.Option(min=1, help="Batches to learn from.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1)] = 4,
    rate: Annotated[float, typer.Option(help="Learning rate, at its highest.")] = 1e-4,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Distil a draft; thousands of steps are wanted in earnest."""
    logging.set_verbosity_error()
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    out = out or Path(mkdtemp(prefix="draft-"))
    teacher: Any = WhisperForConditionalGeneration.from_pretrained(resolve(target), dtype=torch.float32)
    teacher.to(device).eval()
    processor = WhisperProcessor.from_pretrained(resolve(target), language=language, task="transcribe")
    draft: Any = draft_from(teacher, [range(teacher.config.decoder_layers)[i] for i in keep])
    asked = {"language": language, "task": "transcribe"}

    windows = windows_of(recordings)
    num_held_out = max(1, round(HELD_OUT * len(windows)))
    random.shuffle(windows)  # type: ignore[arg-type]
    held_out = [Lesson(teacher, processor, [window], asked) for window in windows[:num_held_out]]
    print(f"{len(windows)} windows, {num_held_out} of them held out")
    print(f"agreement before: {agreement(draft, teacher, held_out):.1%}")

    learning = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=rate, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    for number, batch in enumerate(batches(windows[num_held_out:] or windows, batch_size, random), 1):
        lesson = Lesson(teacher, processor, batch, asked)
        with torch.no_grad():
            wanted = lesson.logits(teacher)
        said = lesson.logits(draft)
        divergence = kl_div(
            said.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
        )
        loss = divergence + cross_entropy(said, wanted.argmax(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        if number % 50 == 0 or number == steps:
            print(f"step {number}: loss {loss.item():.3f}")
        if number == steps:
            break
    print(f"agreement after: {agreement(draft, teacher, held_out):.1%}")
    draft.save_pretrained(out)
    processor.save_pretrained(out)
    print(f"specwhisper evaluate --folder {recordings} --final-model {target} --draft-model {out}")


if __name__ == "__main__":
    typer.run(distil)
