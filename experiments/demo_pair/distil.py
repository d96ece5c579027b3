"""Distilling the two drafts on the target's own transcripts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import WhisperForConditionalGeneration

from . import model as models
from . import parallel
from .batches import make_batch, prefetch
from .checkpoint import Checkpoint
from .corpus import Corpus
from .decode import greedy
from .features import log_mel
from .model import Recognizer, token_loss
from .optimizer import Optimizer
from .phonemes import Phonemes
from .schedule import LESSONS, Schedule
from .tokenizer import Vocabulary, build_tokenizer
from .train import curriculum_batch, fit, step
from .windows import Transcriber, WindowMaker

POOL_LENGTHS = {8.0: 0.35, 15.0: 0.25, 30.0: 0.4}
TARGET_IDS = Vocabulary.of(with_cantonese=True)
TINY_IDS = Vocabulary.of(with_cantonese=False)
CANTONESE = TARGET_IDS.transcribe - 2  # `<|yue|>`, the last language before the tasks


@dataclass(frozen=True)
class Heard:
    """Windows of one length with the target's transcripts, in the target's vocabulary."""

    audio: torch.Tensor
    tokens: torch.Tensor
    labels: torch.Tensor


def load_target(work: Path) -> Recognizer:
    """Load the trained target."""
    target = Recognizer(models.build(TARGET_IDS, **models.TARGET), Phonemes.load(work).size)
    target.load_state_dict(torch.load(work / "target.pt"))
    return target.eval()


def hear(target: Recognizer, work: Path, batches: int, seed: int) -> list[Heard]:
    """Let the target transcribe fresh training windows, with timestamps."""
    maker = WindowMaker(Corpus.load(work))
    tokenizer = build_tokenizer(work / "bpe", with_cantonese=True)
    transcriber = Transcriber(tokenizer, TARGET_IDS, Phonemes.load(work))
    start = [TARGET_IDS.start, TARGET_IDS.english, TARGET_IDS.transcribe]

    def make(rng: np.random.Generator):
        limit = rng.choice(list(POOL_LENGTHS), p=list(POOL_LENGTHS.values()))
        return make_batch(maker, transcriber, float(limit), rng)

    pool = []
    for batch in prefetch(make, [6, seed, parallel.rank()]):
        with torch.inference_mode():
            features = log_mel(batch.audio, target.whisper.config.num_mel_bins)
            encoded = target.encode(features)
        rows = [start + row for row in greedy(target.whisper, encoded, TARGET_IDS)]
        length = max(map(len, rows))
        tokens = torch.full((len(rows), length - 1), TARGET_IDS.end)
        labels = torch.full((len(rows), length - 1), -100)
        for i, row in enumerate(rows):
            tokens[i, : len(row) - 1] = torch.tensor(row[:-1])
            labels[i, : len(row) - 1] = torch.tensor(row[1:])
        pool.append(Heard((batch.audio * 32767).to(torch.int16), tokens, labels))
        if len(pool) == batches:
            return pool
    return pool


def to_tiny(ids: torch.Tensor) -> torch.Tensor:
    """Translate tokens to the vocabulary without `<|yue|>`; -100 stays."""
    return torch.where(ids > CANTONESE, ids - 1, ids)


def without_cantonese(logits: torch.Tensor) -> torch.Tensor:
    """Cut the target's logits down to the draft's vocabulary."""
    return torch.cat([logits[..., :CANTONESE], logits[..., CANTONESE + 1 :]], dim=-1)


def distillation_loss(draft: torch.Tensor, target: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy against the target's choice plus divergence from its distribution."""
    use = labels.flatten() >= 0
    divergence = functional.kl_div(
        draft.flatten(0, 1)[use].log_softmax(-1),
        target.flatten(0, 1)[use].log_softmax(-1),
        log_target=True,
        reduction="batchmean",
    )
    return token_loss(draft, labels) + divergence


def distil(
    draft: torch.nn.Module,
    loss_of: Callable[[Heard], torch.Tensor],
    pool: list[Heard],
    schedule: Schedule,
    path: Path,
    seed: int,
) -> None:
    """Train a draft on the pool until the schedule's time is over, or go on where that was stopped."""
    checkpoint = Checkpoint(path, schedule, weights=draft)
    if schedule.begin >= 1.0:
        return
    rng = np.random.default_rng([5, seed, parallel.rank(), round(1e4 * schedule.begin)])
    optimizer = Optimizer(draft)
    draft.train()
    count, total, over = 0, 0.0, 0.0
    while not over:
        loss = loss_of(pool[rng.integers(len(pool))])
        numbers = [loss.item(), float(schedule.progress >= 1.0)]
        mean, over = step(draft, optimizer, loss, schedule.rate(count), numbers)
        checkpoint.save(now=over > 0)
        count += 1
        total += mean
        if count % 50 == 0:
            if parallel.rank() == 0:
                print(f"step {count} {schedule.progress:.1%}: distillation {total / 50:.3f}", flush=True)
            total = 0.0


def first_and_last(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Copy the target with two decoder layers: of those that learnt from the beginning, first and last."""
    draft = copy.deepcopy(target)
    layers = draft.model.decoder.layers
    draft.model.decoder.layers = torch.nn.ModuleList([layers[0], layers[LESSONS[0].depth - 1]])
    for index, layer in enumerate(draft.model.decoder.layers):
        layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = index
    draft.config.decoder_layers = 2
    for parameter in draft.model.encoder.parameters():
        parameter.requires_grad = False
    return draft


def train_distil(work: Path, target: Recognizer, pool: list[Heard], minutes: float, seed: int) -> None:
    """Train the draft that shares the target's encoder."""
    torch.manual_seed(seed)
    draft = Recognizer(first_and_last(target.whisper), 0)
    mels = target.whisper.config.num_mel_bins

    def loss_of(heard: Heard) -> torch.Tensor:
        with torch.no_grad():
            encoded = target.encode(log_mel(heard.audio / 32767, mels))
            wanted = target.decode(heard.tokens, encoded)
        return distillation_loss(draft.decode(heard.tokens, encoded), wanted, heard.labels)

    schedule = Schedule(minutes, 2e-3, warmup=50)
    distil(draft.whisper, loss_of, pool, schedule, work / "draft-distil.state.pt", seed)
    if parallel.rank() == 0:
        torch.save(draft.whisper.state_dict(), work / "draft-distil.pt")


def pretrain_tiny(work: Path, minutes: float, seed: int) -> Recognizer:
    """Teach the small draft to listen, on the true transcripts, as the target was taught."""
    torch.manual_seed(seed)
    phonemes = Phonemes.load(work)
    draft = Recognizer(models.build(TINY_IDS, **models.TINY), phonemes.size)
    maker = WindowMaker(Corpus.load(work))
    tokenizer = build_tokenizer(work / "bpe", with_cantonese=False)
    transcriber = Transcriber(tokenizer, TINY_IDS, phonemes)
    return fit(
        draft,
        partial(curriculum_batch, maker, transcriber),
        Schedule(minutes, 5e-3),
        work / "draft-tiny-pretrained.state.pt",
        seed + 1,
    )


def train_tiny(
    work: Path, draft: Recognizer, target: Recognizer, pool: list[Heard], minutes: float, seed: int
) -> None:
    """Distil the draft that has an encoder and a vocabulary of its own."""
    target_mels = target.whisper.config.num_mel_bins

    def loss_of(heard: Heard) -> torch.Tensor:
        audio = heard.audio / 32767
        with torch.no_grad():
            wanted = target.decode(heard.tokens, target.encode(log_mel(audio, target_mels)))
        encoded = draft.encode(log_mel(audio, draft.whisper.config.num_mel_bins))
        logits = draft.decode(to_tiny(heard.tokens), encoded)
        return distillation_loss(logits, without_cantonese(wanted), to_tiny(heard.labels))

    schedule = Schedule(minutes, 3e-3, warmup=50)
    distil(draft, loss_of, pool, schedule, work / "draft-tiny.state.pt", seed)
    if parallel.rank() == 0:
        torch.save(draft.whisper.state_dict(), work / "draft-tiny.pt")


def train_drafts(work: Path, minutes: float, heard: int, seed: int) -> None:
    """Train both drafts; each process lets the target transcribe `heard` batches of windows."""
    target = load_target(work)
    tiny = pretrain_tiny(work, minutes, seed)
    pool = hear(target, work, heard, seed)
    print(f"{sum(len(h.tokens) for h in pool)} windows transcribed", flush=True)
    train_tiny(work, tiny, target, pool, minutes / 2, seed)
    train_distil(work, target, pool, minutes / 2, seed)
