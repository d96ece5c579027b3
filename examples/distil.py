"""Distil a draft from any Whisper, on recordings of the speech you expect; no texts are needed.

python examples/distil.py --target large-v3 --recordings FOLDER --out FOLDER --language nl --device cuda

The draft keeps the target's encoder and some of its decoder layers, and learns the target's text. Their
agreement is printed before and after, on whole recordings that are held out of training.
"""

from __future__ import annotations

import copy
import sys
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

from specwhisper import DecodingOptions
from specwhisper.audio.decode import AUDIO_SUFFIXES, decode_file
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.errors import SpecWhisperError
from specwhisper.languages import language_code
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.model import WhisperModel
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode

WINDOW_BYTES = 30 * 16_000 * 2
SHORTEST_BYTES = 16_000 * 2
HELD_OUT = 0.1
SAMPLES = Path(str(files("specwhisper"))) / "demo" / "samples"


class Teacher:
    """The target: it writes windows, and has the probability of every token."""

    def __init__(self, name: str, language: str, device: str, batch_size: int) -> None:
        checkpoint = load_checkpoint(name)
        self._engine = SharedPair(WhisperModel(checkpoint, batch_size, device=device))
        self._batch_size = batch_size
        self._options = DecodingOptions.greedy(language=language_code(language))
        self._vocabulary = checkpoint.vocabulary
        self._prompt = checkpoint.vocabulary.prompt(self._options)
        self._written: dict[bytes, tuple[int, ...]] = {}
        source = resolve(name)
        self.processor = WhisperProcessor.from_pretrained(source)
        self.model: Any = WhisperForConditionalGeneration.from_pretrained(source, dtype=torch.float32)
        self.model.to(device).eval()

    def lesson(self, windows: list[bytes]) -> Lesson:
        """Transcribe windows that are new, and return them as a lesson."""
        new = [pcm for pcm in windows if pcm not in self._written]
        recordings = (Prepared(pcm, self._options) for pcm in new)
        length = DraftLength(Mode.TARGET_ONLY)
        for index, text in self._engine.transcribe(recordings, length, max_sessions=self._batch_size):
            if isinstance(text, Exception):
                raise text
            # The draft learns what follows the window's start.
            self._written[new[index]] = text.window_tokens[0]
        samples = [np.frombuffer(pcm, "<i2").astype(np.float32) / 32768 for pcm in windows]
        features = self.processor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        with torch.no_grad():
            encoded = self.model.model.encoder(features.to(self.model.device)).last_hidden_state
        rows = [[*self._prompt, *self._written[pcm]] for pcm in windows]
        width, end = max(map(len, rows)), self._vocabulary.end_of_text
        tokens = torch.tensor([row + [end] * (width - len(row)) for row in rows])
        places = torch.arange(width)
        counts = (places >= len(self._prompt)) & (places < torch.tensor([[len(row)] for row in rows]))
        return Lesson(encoded, tokens.to(encoded.device), counts[:, 1:].to(encoded.device))


class Lesson:
    """Encoded windows, the target's tokens, and the positions that count."""

    def __init__(self, encoded: Tensor, tokens: Tensor, counts: Tensor) -> None:
        self._encoded, self._tokens, self._counts = encoded, tokens, counts

    def logits(self, model: Any) -> Tensor:
        """Return a model's logits at each position that counts, given the target's tokens before it."""
        out = model(encoder_outputs=(self._encoded,), decoder_input_ids=self._tokens[:, :-1])
        return out.logits[self._counts]


def windows_of(paths: list[Path]) -> list[bytes]:
    """Cut recordings into windows of 30 s; what is shorter than a second is left out."""
    found = []
    for path in paths:
        pcm = b"".join(decode_file(path))
        pieces = [pcm[i : i + WINDOW_BYTES] for i in range(0, len(pcm), WINDOW_BYTES)]
        found += [piece for piece in pieces if len(piece) >= SHORTEST_BYTES]
    return found


def in_ever_new_order(windows: list[bytes], size: int, random: np.random.Generator) -> Iterator[list[bytes]]:
    """Yield batches forever."""
    while True:
        order = random.permutation(len(windows))
        for i in range(0, len(order), size):
            yield [windows[j] for j in order[i : i + size]]


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


def agreement(draft: Any, target: Any, lessons: list[Lesson]) -> float:
    """Share of tokens at which the draft would have written the target's."""
    with torch.no_grad():
        same = [lesson.logits(draft).argmax(-1) == lesson.logits(target).argmax(-1) for lesson in lessons]
    return torch.cat(same).float().mean().item()


def distil(
    target: Annotated[str, typer.Option(help="The model whose text it will be.")] = "demo-target",
    recordings: Annotated[Path, typer.Option(file_okay=False, exists=True, help="A folder.")] = SAMPLES,
    out: Annotated[Path | None, typer.Option(help="Where the draft goes.")] = None,
    language: Annotated[str, typer.Option(help="Of the recordings.")] = "en",
    keep: Annotated[list[int] | None, typer.Option(help="A decoder layer to keep; repeat for more.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Batches to learn from.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows in a batch.")] = 4,
    rate: Annotated[float, typer.Option(help="Learning rate, at its highest.")] = 1e-4,
    device: Annotated[str, typer.Option(help="As torch names it.")] = "cpu",
    seed: int = 0,
) -> None:
    """Distil a draft; thousands of steps are wanted in earnest."""
    logging.set_verbosity_error()
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    out = out or Path(mkdtemp(prefix="draft-"))
    paths = sorted(p for p in recordings.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
    if len(paths) < 2:
        sys.exit(f"{recordings} holds {len(paths)} recordings: at least two are needed, one to test on.")
    try:
        teacher = Teacher(target, language, device, batch_size)
        random.shuffle(paths)  # type: ignore[arg-type]
        num_held_out = max(1, round(HELD_OUT * len(paths)))
        held_out, known = windows_of(paths[:num_held_out]), windows_of(paths[num_held_out:])
    except SpecWhisperError as error:
        sys.exit(str(error))
    num_layers = teacher.model.config.decoder_layers
    kept = [i + num_layers if i < 0 else i for i in keep or (0, -1)]
    if not all(0 <= i < num_layers for i in kept):
        sys.exit(f"There is no such layer among {keep}: {target} has decoder layers 0 to {num_layers - 1}.")
    draft: Any = draft_from(teacher.model, kept)
    exam = [teacher.lesson([window]) for window in held_out]
    print(f"{len(known)} windows to learn from, {len(held_out)} of other recordings to test on")
    print(f"agreement before: {agreement(draft, teacher.model, exam):.1%}")

    learning = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    for number, windows in enumerate(in_ever_new_order(known, batch_size, random), start=1):
        lesson = teacher.lesson(windows)
        with torch.no_grad():
            wanted = lesson.logits(teacher.model)
        said = lesson.logits(draft)
        divergence = kl_div(
            said.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
        )
        loss = divergence + cross_entropy(said, wanted.argmax(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if number % 50 == 0 or number == steps:
            print(f"step {number}: loss {loss.item():.3f}")
        if number == steps:
            break
    print(f"agreement after: {agreement(draft, teacher.model, exam):.1%}")
    draft.save_pretrained(out)
    teacher.processor.save_pretrained(out)
    print(f"the draft is in {out}: specwhisper-draft-server --draft-model {out}")


if __name__ == "__main__":
    typer.run(distil)
