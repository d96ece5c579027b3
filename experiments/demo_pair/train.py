"""Training the target: cross entropy and CTC, on windows that grow longer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from . import model as models
from . import parallel
from .alignment import AlignmentLoss
from .batches import Batch, make_batch, prefetch
from .corpus import Corpus
from .model import Recognizer, token_loss
from .tokenizer import Vocabulary, build_tokenizer
from .windows import Transcriber, WindowMaker

CTC_WEIGHT = 1.0
ALIGNMENT_WEIGHT = 0.5


class Stage(Enum):
    """What is being learnt, since on full windows nothing is learnt for a long time.

    LISTEN trains the encoder alone, READ adds the decoder, without timestamps, both on single
    short clean sentences; FULL is everything, on windows that grow longer.
    """

    LISTEN = 0
    READ = 1
    FULL = 2


LISTENING_LOSS = 1.6  # the CTC loss that ends LISTEN
READING_LOSS = 1.8  # the decoder's loss that ends READ
# In FULL: from which share of the training, which window lengths with which weights.
CURRICULUM: tuple[tuple[float, dict[float, float]], ...] = (
    (0.00, {4.0: 0.5, 8.0: 0.4, 15.0: 0.1}),
    (0.30, {4.0: 0.2, 8.0: 0.35, 15.0: 0.25, 30.0: 0.2}),
    (0.65, {8.0: 0.2, 15.0: 0.2, 30.0: 0.6}),
)


@dataclass
class Schedule:
    """Learning rate over the process's own CPU time, so that other work does not cut it short.

    Warm-up goes by steps, then a half cosine down to zero.
    A continued training begins at some progress, so further down the cosine.
    """

    minutes: float
    peak: float
    warmup: int = 100
    begin: float = 0.0
    stage: Stage = Stage.LISTEN
    started: float | None = None

    @property
    def progress(self) -> float:
        """How much of the training is done."""
        if self.started is None:
            self.started = time.process_time()
        share = (time.process_time() - self.started) / (60 * self.minutes)
        return min(1.0, self.begin + (1 - self.begin) * share)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        cosine = 0.5 * (1 + np.cos(np.pi * self.progress))
        return self.peak * min(1.0, (step + 1) / self.warmup) * max(cosine, 0.01)

    def advance(self, decoder_loss: float, ctc_loss: float) -> None:
        """Go on to the next stage once a loss is low enough."""
        if self.stage is Stage.LISTEN and ctc_loss < LISTENING_LOSS:
            self.stage = Stage.READ
        elif self.stage is Stage.READ and decoder_loss < READING_LOSS:
            self.stage = Stage.FULL


def curriculum_batch(
    maker: WindowMaker, transcriber: Transcriber, schedule: Schedule, rng: np.random.Generator
) -> Batch:
    """Make a batch of the curriculum's current stage."""
    if schedule.stage is not Stage.FULL:
        return make_batch(maker, transcriber, 4.0, rng, simple=True)
    progress = schedule.progress
    weights = next(stage for start, stage in reversed(CURRICULUM) if progress >= start)
    limit = float(rng.choice(list(weights), p=list(weights.values())))
    return make_batch(maker, transcriber, limit, rng)


def mask_bands(features: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Hide a band of frequencies and a few short stretches of time (SpecAugment)."""
    floor = features.amin(dim=(1, 2))
    mels, frames = features.shape[1:]
    for row, low in zip(features, floor, strict=True):
        if rng.random() < 0.5:
            start = int(rng.integers(mels))
            row[start : start + int(rng.integers(1, mels // 8))] = low
        for _ in range(int(rng.integers(0, 1 + frames // 400))):
            start = int(rng.integers(frames))
            row[:, start : start + int(rng.integers(1, 12))] = low
    return features


def optimizer_for(module: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW with weight decay on the matrices only."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.02},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98),
        fused=True,
    )


def step(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: torch.Tensor,
    rate: float,
    numbers: list[float],
) -> list[float]:
    """Take one optimiser step with clipped gradients; return the numbers' averages."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    means = parallel.average(module, numbers)
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    return means


def save(module: torch.nn.Module, path: Path) -> None:
    """Replace saved weights in one go."""
    torch.save(module.state_dict(), path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def fit(recognizer: Recognizer, batches: Iterable[Batch], schedule: Schedule, path: Path, seed: int) -> None:
    """Train until the schedule's time is over, saving the weights every two minutes."""
    rng = np.random.default_rng([seed, 4, parallel.rank()])
    optimizer = optimizer_for(recognizer)
    mels = recognizer.whisper.config.num_mel_bins
    recognizer.train()
    # The running average of the weights is good at any time, before the rate has come down too.
    averaged = AveragedModel(recognizer, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    alignment_loss = AlignmentLoss(recognizer.whisper)
    saved = time.monotonic()
    sums = np.zeros(4)
    for count, batch in enumerate(batches):
        features = batch.features(mels)
        if schedule.stage is Stage.FULL:
            features = mask_bands(features, rng)
        encoded = recognizer.encode(features, batch.offsets)
        ctc_loss = recognizer.ctc_loss(encoded, batch.letters, batch.complete)
        decoder_loss = aligning_loss = torch.zeros(())
        if schedule.stage is not Stage.LISTEN:
            decoder_loss = token_loss(recognizer.decode(batch.tokens, encoded), batch.labels)
        if schedule.stage is Stage.FULL:
            aligning_loss = alignment_loss(encoded, batch.offsets, batch.times)
        loss = decoder_loss + CTC_WEIGHT * ctc_loss + ALIGNMENT_WEIGHT * aligning_loss
        over = float(schedule.progress >= 1.0)
        decoder_mean, ctc_mean, aligning_mean, over = step(
            recognizer,
            optimizer,
            loss,
            schedule.rate(count),
            [decoder_loss.item(), ctc_loss.item(), aligning_loss.item(), over],
        )
        averaged.update_parameters(recognizer)
        sums += (decoder_mean, ctc_mean, aligning_mean, 1)
        if count % 25 == 24 and parallel.rank() == 0:
            decoder_mean, ctc_mean, aligning_mean = sums[:3] / sums[3]
            print(
                f"step {count + 1} {schedule.progress:.1%}: decoder {decoder_mean:.3f} "
                f"ctc {ctc_mean:.3f} alignment {aligning_mean:.3f}",
                flush=True,
            )
        if count % 25 == 24:
            schedule.advance(*(sums[:2] / sums[3]))
            sums[:] = 0
        if parallel.rank() == 0 and (over or time.monotonic() - saved > 120):
            save(recognizer, path.with_suffix(".raw.pt"))
            save(averaged.module, path)
            saved = time.monotonic()
        if over:
            return


def train_target(work: Path, minutes: float, seed: int, begin: float = 0.0, peak: float = 1.2e-3) -> None:
    """Train the target; with `begin` above zero, continue from the saved weights."""
    torch.manual_seed(seed)
    vocabulary = Vocabulary.of(with_cantonese=True)
    recognizer = Recognizer(models.build(vocabulary, **models.TARGET))
    if begin > 0:
        recognizer.load_state_dict(torch.load(work / "target.raw.pt"))
    maker = WindowMaker(Corpus.load(work))
    transcriber = Transcriber(build_tokenizer(work / "bpe", with_cantonese=True), vocabulary)
    schedule = Schedule(minutes, peak, begin=begin, stage=Stage.READ if begin else Stage.LISTEN)

    def make(rng: np.random.Generator) -> Batch:
        return curriculum_batch(maker, transcriber, schedule, rng)

    fit(recognizer, prefetch(make, seed), schedule, work / "target.pt", seed)
