"""Training the target: cross entropy and CTC, on windows that grow longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from experiments.demo_pair import model as models
from experiments.demo_pair.data.batches import Batch, make_batch, prefetch
from experiments.demo_pair.data.corpus import Corpus
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.data.tokenizer import TEXT_TOKENS, Vocabulary, build_tokenizer
from experiments.demo_pair.data.windows import Transcriber, WindowMaker
from experiments.demo_pair.model import Recognizer, token_loss
from experiments.demo_pair.training import parallel
from experiments.demo_pair.training.alignment import AlignmentLoss
from experiments.demo_pair.training.checkpoint import Checkpoint
from experiments.demo_pair.training.optimizer import Optimizer
from experiments.demo_pair.training.precision import mixed
from experiments.demo_pair.training.schedule import LESSONS, Schedule, Stage

CTC_WEIGHT = 1.0
ALIGNMENT_WEIGHT = 0.5


def curriculum_batch(
    maker: WindowMaker, transcriber: Transcriber, rng: np.random.Generator, schedule: Schedule
) -> Batch:
    """Make a batch for the current lesson."""
    lesson = schedule.lesson
    limit = float(rng.choice(list(lesson.lengths_s), p=list(lesson.lengths_s.values())))
    listening = lesson.stage is Stage.LISTEN
    return make_batch(maker, transcriber, limit, rng, plain=lesson.is_plain, anywhere=listening)


def mask_bands(features: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Hide a band of frequencies and a few short stretches of time (SpecAugment)."""
    floor = features.amin(dim=(1, 2))
    mels, frames = features.shape[1:]
    for row, low in zip(features, floor, strict=True):
        if rng.random() < 0.3:
            start = int(rng.integers(mels))
            row[start : start + int(rng.integers(1, mels // 8))] = low
        for _ in range(int(rng.integers(0, 1 + frames // 800))):
            start = int(rng.integers(frames))
            row[:, start : start + int(rng.integers(1, 12))] = low
    return features


def misread(tokens: torch.Tensor, share: float, rng: np.random.Generator) -> torch.Tensor:
    """Replace a share of the text tokens by any others."""
    wrong = torch.from_numpy(rng.random(tokens.shape) < share) & (tokens < TEXT_TOKENS)
    return torch.where(wrong, torch.from_numpy(rng.integers(TEXT_TOKENS, size=tokens.shape)), tokens)


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
    """Train, or continue a stopped training, until its time is over; return the averaged weights."""
    optimizer = Optimizer(recognizer)
    mels = recognizer.whisper.config.num_mel_bins
    # The running average of the weights is good at any time, before the rate has come down too.
    averaged = AveragedModel(recognizer, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    checkpoint = Checkpoint(path, schedule, optimizer, weights=recognizer, averaged=averaged)
    seeds = [seed, parallel.rank(), round(1e4 * schedule.begin)]
    rng = np.random.default_rng([4, *seeds])
    alignment_loss = AlignmentLoss(recognizer.whisper)
    recognizer.train()
    sums = np.zeros(4)
    if schedule.begin >= 1.0:
        return averaged.module
    batches = prefetch(partial(make, schedule=schedule), [3, *seeds])
    for count, batch in enumerate(batches):
        # All processes learn the same, whichever of them comes to a new lesson first.
        lesson = parallel.agreed(schedule.lesson)
        features = batch.features(mels)
        if not batch.is_plain:
            features = mask_bands(features, rng)
        with mixed(), torch.set_grad_enabled(lesson.stage.changes_encoder):
            encoded = recognizer.encode(features, batch.offsets)
        decoder_loss = aligning_loss = torch.zeros(())
        with mixed():
            ctc_loss = recognizer.ctc_loss(encoded, batch.phonemes, batch.complete)
            if lesson.stage.uses_decoder:
                tokens = misread(batch.tokens, lesson.misread, rng)
                decoder_loss = token_loss(recognizer.decode(tokens, encoded, lesson.depth), batch.labels)
                aligning_loss = alignment_loss(encoded, batch.offsets, batch.times)
        loss = decoder_loss + CTC_WEIGHT * ctc_loss + ALIGNMENT_WEIGHT * aligning_loss
        numbers = [decoder_loss.item(), ctc_loss.item(), aligning_loss.item()]
        flags = [float(checkpoint.is_due), float(schedule.progress >= 1.0)]
        decoder_mean, ctc_mean, aligning_mean, due, over = step(
            recognizer, optimizer, loss, schedule.next_rate(lesson.stage), [*numbers, *flags]
        )
        averaged.update_parameters(recognizer)
        if due or over:
            checkpoint.save()
        if over:
            break
        sums += (decoder_mean, ctc_mean, aligning_mean, 1)
        if count % 25 == 24:
            decoder_mean, ctc_mean, aligning_mean = sums[:3] / sums[3]
            sums[:] = 0
            if parallel.rank() == 0:
                print(
                    f"step {count + 1} {schedule.progress:.1%}: decoder {decoder_mean:.3f} "
                    f"ctc {ctc_mean:.3f} alignment {aligning_mean:.3f}",
                    flush=True,
                )
    batches.close()
    return averaged.module


def train_target(work: Path, minutes: float, seed: int, peak: float = 3e-3, hold: float = 0.0) -> None:
    """Train the target."""
    torch.manual_seed(seed)
    vocabulary = Vocabulary.of(with_cantonese=True)
    phonemes = Phonemes.load(work)
    maker = WindowMaker(Corpus.load(work))
    transcriber = Transcriber(build_tokenizer(work / "bpe", with_cantonese=True), vocabulary, phonemes)
    whisper = models.build(vocabulary, **models.TARGET)
    models.make_identities(whisper, LESSONS[0].depth)
    target = fit(
        Recognizer(whisper, phonemes.size),
        partial(curriculum_batch, maker, transcriber),
        Schedule(minutes, peak, hold=hold),
        work / "target.state.pt",
        seed,
    )
    if parallel.rank() == 0:
        torch.save(target.state_dict(), work / "target.pt")
