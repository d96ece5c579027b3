"""Training the target: cross entropy and CTC, on windows that grow longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from . import model as models
from . import parallel
from .alignment import AlignmentLoss
from .batches import Batch, make_batch, prefetch
from .checkpoint import Checkpoint
from .corpus import Corpus
from .model import Recognizer, token_loss
from .optimizer import Optimizer
from .phonemes import Phonemes
from .schedule import Schedule, Stage
from .tokenizer import Vocabulary, build_tokenizer
from .windows import Transcriber, WindowMaker

CTC_WEIGHT = 1.0
ALIGNMENT_WEIGHT = 0.5

# In FULL: from which share of the training, which window lengths with which weights.
CURRICULUM: tuple[tuple[float, dict[float, float]], ...] = (
    (0.00, {4.0: 0.4, 8.0: 0.4, 15.0: 0.2}),
    (0.25, {4.0: 0.2, 8.0: 0.3, 15.0: 0.25, 30.0: 0.25}),
    (0.60, {8.0: 0.2, 15.0: 0.2, 30.0: 0.6}),
)


def curriculum_batch(
    maker: WindowMaker, transcriber: Transcriber, rng: np.random.Generator, schedule: Schedule
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


def step(
    module: torch.nn.Module,
    optimizer: Optimizer,
    loss: torch.Tensor,
    rate: float,
    numbers: list[float],
) -> list[float]:
    """Take one optimiser step with clipped gradients; return the numbers' averages."""
    module.zero_grad(set_to_none=True)
    loss.backward()
    means = parallel.average(module, numbers)
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step(rate)
    return means


def fit(
    recognizer: Recognizer,
    make: Callable[[np.random.Generator, Schedule], Batch],
    schedule: Schedule,
    path: Path,
    seed: int,
) -> Recognizer:
    """Train, or go on with a stopped training, until its time is over; return the averaged weights."""
    optimizer = Optimizer(recognizer)
    mels = recognizer.whisper.config.num_mel_bins
    # The running average of the weights is good at any time, before the rate has come down too.
    averaged = AveragedModel(recognizer, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    checkpoint = Checkpoint(path, schedule, weights=recognizer, averaged=averaged)
    seeds = [seed, parallel.rank(), round(1e4 * schedule.begin)]
    rng = np.random.default_rng([4, *seeds])
    alignment_loss = AlignmentLoss(recognizer.whisper)
    recognizer.train()
    sums = np.zeros(4)
    for count, batch in enumerate(prefetch(partial(make, schedule=schedule), [3, *seeds])):
        if schedule.begin >= 1.0:
            break
        features = batch.features(mels)
        if schedule.stage is Stage.FULL:
            features = mask_bands(features, rng)
        encoded = recognizer.encode(features, batch.offsets)
        ctc_loss = recognizer.ctc_loss(encoded, batch.phonemes, batch.complete)
        decoder_loss = aligning_loss = torch.zeros(())
        if schedule.stage is not Stage.LISTEN:
            decoder_loss = token_loss(recognizer.decode(batch.tokens, encoded), batch.labels)
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
        checkpoint.save(now=over > 0)
        if over:
            break
        sums += (decoder_mean, ctc_mean, aligning_mean, 1)
        if count % 25 == 24:
            decoder_mean, ctc_mean, aligning_mean = sums[:3] / sums[3]
            schedule.advance(decoder_mean, ctc_mean)
            sums[:] = 0
            if parallel.rank() == 0:
                print(
                    f"step {count + 1} {schedule.progress:.1%}: decoder {decoder_mean:.3f} "
                    f"ctc {ctc_mean:.3f} alignment {aligning_mean:.3f}",
                    flush=True,
                )
    return averaged.module


def train_target(work: Path, minutes: float, seed: int, peak: float = 4e-3) -> None:
    """Train the target."""
    torch.manual_seed(seed)
    vocabulary = Vocabulary.of(with_cantonese=True)
    phonemes = Phonemes.load(work)
    maker = WindowMaker(Corpus.load(work))
    transcriber = Transcriber(build_tokenizer(work / "bpe", with_cantonese=True), vocabulary, phonemes)
    target = fit(
        Recognizer(models.build(vocabulary, **models.TARGET), phonemes.size),
        partial(curriculum_batch, maker, transcriber),
        Schedule(minutes, peak),
        work / "target.state.pt",
        seed,
    )
    if parallel.rank() == 0:
        torch.save(target.state_dict(), work / "target.pt")
