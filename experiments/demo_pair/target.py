"""Training the target: cross entropy, CTC and alignment, on windows that grow longer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from experiments.demo_pair import model as models
from experiments.demo_pair import processes
from experiments.demo_pair.batches import Batch, make_batch, prefetch
from experiments.demo_pair.corpus import Corpus
from experiments.demo_pair.model import AlignmentLoss, Recognizer, token_loss
from experiments.demo_pair.training import LESSONS, Schedule, Stage, Training, mixed
from experiments.demo_pair.vocabulary import TARGET_IDS, Phonemes, load_tokenizer
from experiments.demo_pair.windows import Transcriber, WindowMaker

WEIGHTS = "target.pt"
PEAK_RATE = 3e-3
ALIGNMENT_WEIGHT = 0.5
REPORT_STEPS = 25


def new_target(work: Path) -> Recognizer:
    return Recognizer(models.build(models.load_config("target")), Phonemes.load(work).size)


def load_target(work: Path) -> Recognizer:
    target = new_target(work)
    target.load_state_dict(torch.load(work / WEIGHTS))
    return target.eval()


def lesson_batch(
    maker: WindowMaker, transcriber: Transcriber, schedule: Schedule, rng: np.random.Generator
) -> Batch:
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
    wrong = torch.from_numpy(rng.random(tokens.shape) < share) & (tokens < TARGET_IDS.end)
    return torch.where(wrong, torch.from_numpy(rng.integers(TARGET_IDS.end, size=tokens.shape)), tokens)


def train_target(work: Path, minutes: float, seed: int) -> None:
    """Train until the time is over; save the averaged weights."""
    torch.manual_seed(seed)
    recognizer = new_target(work)
    models.make_identities(recognizer.whisper, LESSONS[0].depth)
    # The running average of the weights is good at any time, before the rate has come down too.
    averaged = AveragedModel(recognizer, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    schedule = Schedule(minutes, PEAK_RATE)
    training = Training(schedule, recognizer)
    transcriber = Transcriber(load_tokenizer("target"), TARGET_IDS, Phonemes.load(work))
    make = partial(lesson_batch, WindowMaker(Corpus.load(work)), transcriber, schedule)
    seeds = [seed, processes.rank()]
    rng = np.random.default_rng([4, *seeds])
    alignment_loss = AlignmentLoss(recognizer.whisper)
    recognizer.train()
    sums, over = np.zeros(3), False
    batches = prefetch(make, [3, *seeds])
    while not over:
        batch = next(batches)
        # All processes learn the same, whichever of them comes to a new lesson first.
        lesson = processes.agreed(schedule.lesson)
        features = batch.features(recognizer.num_mels)
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
        loss = decoder_loss + ctc_loss + ALIGNMENT_WEIGHT * aligning_loss
        losses = [decoder_loss.item(), ctc_loss.item(), aligning_loss.item()]
        means, over = training.step(loss, schedule.next_rate(lesson.stage), losses)
        averaged.update_parameters(recognizer)
        sums += means
        if schedule.steps % REPORT_STEPS == 0 and processes.rank() == 0:
            decoder, ctc, aligning = sums / REPORT_STEPS
            print(
                f"{lesson.stage.name}, step {schedule.steps}, {schedule.progress:.1%}: "
                f"decoder {decoder:.3f} ctc {ctc:.3f} alignment {aligning:.3f}",
                flush=True,
            )
            sums[:] = 0
    batches.close()
    if processes.rank() == 0:
        torch.save(averaged.module.state_dict(), work / WEIGHTS)
