"""Distilling the two drafts on fresh windows: they learn the target's continuations of prefixes of both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.demo_pair import model as models
from experiments.demo_pair.data.batches import Batch, make_batch, prefetch
from experiments.demo_pair.data.corpus import Corpus
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.data.tokenizer import build_tokenizer
from experiments.demo_pair.data.windows import Transcriber, WindowMaker
from experiments.demo_pair.model import Recognizer, token_loss
from experiments.demo_pair.training import parallel
from experiments.demo_pair.training.alignment import AlignmentLoss
from experiments.demo_pair.training.checkpoint import Checkpoint
from experiments.demo_pair.training.optimizer import Optimizer
from experiments.demo_pair.training.pieces import (
    TARGET_IDS,
    TINY_IDS,
    distil_from,
    tiny_from,
    to_target,
    to_tiny,
    without_cantonese,
)
from experiments.demo_pair.training.precision import mixed
from experiments.demo_pair.training.prefixes import own_prefixes
from experiments.demo_pair.training.schedule import Schedule
from experiments.demo_pair.training.train import step

WINDOW_LENGTHS_S = {8.0: 0.25, 15.0: 0.25, 30.0: 0.5}
PEAK_RATE = 2e-3
HOLD = 0.5
OWN_PREFIXES_FROM = 0.15  # before, a draft writes no prefix worth continuing
ALIGNMENT_WEIGHT = 0.25
REPORT_STEPS = 25


def load_target(work: Path) -> Recognizer:
    """Load the trained target."""
    target = Recognizer(models.build(TARGET_IDS, **models.TARGET), Phonemes.load(work).size)
    target.load_state_dict(torch.load(work / "target.pt"))
    return target.eval()


def distillation_loss(draft: torch.Tensor, target: torch.Tensor, use: torch.Tensor) -> torch.Tensor:
    """Return cross entropy against the target's choice plus divergence, where ``use`` is true."""
    drafted, wanted = draft[use].float(), target[use].float()
    divergence = functional.kl_div(
        drafted.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    return token_loss(drafted[None], wanted.argmax(-1)[None]) + divergence


@dataclass(frozen=True)
class Lesson:
    """Target, hooks of the losses, and the two drafts."""

    target: Recognizer
    tiny: Recognizer
    distil: Recognizer
    alignment: dict[str, AlignmentLoss]

    @classmethod
    def of(cls, target: Recognizer, drafts: nn.ModuleDict) -> Lesson:
        """Prepare the drafts' lesson."""
        alignment = {name: AlignmentLoss(draft.whisper) for name, draft in drafts.items()}
        return cls(target, drafts["draft-tiny"], drafts["draft-distil"], alignment)

    def losses(self, batch: Batch, own: bool) -> list[torch.Tensor]:
        """Return a batch's losses: the encoder's outputs, tiny's answers, distil's, and the alignment."""
        with torch.no_grad():
            encoded = self.target.encode(batch.features(models.TARGET["mels"]), batch.offsets)
        own_encoded = self.tiny.encode(batch.features(models.TINY["mels"]), batch.offsets)
        encoder_loss = functional.mse_loss(own_encoded.float(), encoded.float())
        after = self._after_own if own else self._after_right
        return [encoder_loss, *after(batch, encoded, own_encoded)]

    def _after_right(
        self, batch: Batch, encoded: torch.Tensor, own_encoded: torch.Tensor
    ) -> list[torch.Tensor]:
        use = batch.labels >= 0
        with torch.no_grad():
            wanted = self.target.decode(batch.tokens, encoded)
        tiny = distillation_loss(
            self.tiny.decode(to_tiny(batch.tokens), own_encoded), without_cantonese(wanted), use
        )
        distil = distillation_loss(self.distil.decode(batch.tokens, encoded), wanted, use)
        places = (batch.offsets, batch.times)
        aligning = self.alignment["draft-tiny"](own_encoded, *places)
        return [tiny, distil, aligning + self.alignment["draft-distil"](encoded, *places)]

    def _after_own(
        self, batch: Batch, encoded: torch.Tensor, own_encoded: torch.Tensor
    ) -> list[torch.Tensor]:
        short = own_prefixes(self.tiny.whisper, own_encoded, TINY_IDS)
        long = own_prefixes(self.distil.whisper, encoded, TARGET_IDS)
        with torch.no_grad():
            after_short = without_cantonese(self.target.decode(to_target(short.tokens), encoded))
            after_long = self.target.decode(long.tokens, encoded)
        tiny = distillation_loss(self.tiny.decode(short.tokens, own_encoded), after_short, short.use)
        distil = distillation_loss(self.distil.decode(long.tokens, encoded), after_long, long.use)
        return [tiny, distil, torch.zeros(())]


def batches_of(work: Path, seeds: list[int]):
    """Make windows, every other batch of them to be written from the start."""
    maker = WindowMaker(Corpus.load(work))
    tokenizer = build_tokenizer(work / "bpe", with_cantonese=True)
    transcriber = Transcriber(tokenizer, TARGET_IDS, Phonemes.load(work))
    turns = count()

    def make(rng: np.random.Generator) -> Batch:
        limit = rng.choice(list(WINDOW_LENGTHS_S), p=list(WINDOW_LENGTHS_S.values()))
        return make_batch(maker, transcriber, float(limit), rng, from_start=next(turns) % 2 == 1)

    return prefetch(make, seeds)


class Report:
    """Prints the losses' means every few steps, those after own prefixes apart."""

    NAMES = ("encoder", "tiny", "distil", "alignment")

    def __init__(self) -> None:
        self._sums = {False: np.zeros(5), True: np.zeros(5)}

    def add(self, own: bool, losses: list[float], schedule: Schedule) -> None:
        """Count one step's losses."""
        self._sums[own] += (*losses, 1)
        if schedule.steps % REPORT_STEPS or parallel.rank() != 0:
            return
        parts = [f"step {schedule.steps} {schedule.progress:.1%}"]
        for after_own, sums in self._sums.items():
            if sums[-1]:
                means = sums[:-1] / sums[-1]
                said = " ".join(f"{name} {mean:.3f}" for name, mean in zip(self.NAMES, means, strict=True))
                parts.append(f"{'after own prefixes' if after_own else 'after right prefixes'}: {said}")
            sums[:] = 0
        print("; ".join(parts), flush=True)


def train_drafts(work: Path, minutes: float, seed: int) -> None:
    """Train both drafts at once: what is expensive is to ask the target."""
    torch.manual_seed(seed)
    target = load_target(work)
    drafts = nn.ModuleDict(
        {
            "draft-tiny": Recognizer(tiny_from(target.whisper), 0),
            "draft-distil": Recognizer(distil_from(target.whisper), 0),
        }
    )
    schedule = Schedule(minutes, PEAK_RATE, warmup=50, hold=HOLD)
    optimizer = Optimizer(drafts)
    checkpoint = Checkpoint(work / "drafts.state.pt", schedule, optimizer, weights=drafts)
    # The target may have learnt on since these drafts were saved.
    drafts["draft-distil"].whisper.model.encoder.load_state_dict(target.whisper.model.encoder.state_dict())
    lesson, report = Lesson.of(target, drafts), Report()
    drafts.train()
    batches = batches_of(work, [6, seed, parallel.rank(), round(1e4 * schedule.begin)])
    while schedule.begin < 1.0:
        batch = next(batches)
        own = parallel.agreed(schedule.progress >= OWN_PREFIXES_FROM) and batch.from_start
        with mixed():
            losses = lesson.losses(batch, own)
        loss = losses[0] + losses[1] + losses[2] + ALIGNMENT_WEIGHT * losses[3]
        numbers = [part.item() for part in losses]
        flags = [float(checkpoint.is_due), float(schedule.progress >= 1.0)]
        *means, due, over = step(drafts, optimizer, loss, schedule.next_rate(), [*numbers, *flags])
        report.add(own, means, schedule)
        if due or over:
            checkpoint.save()
        if over:
            break
    batches.close()
    if parallel.rank() == 0:
        for name, draft in drafts.items():
            torch.save(draft.whisper.state_dict(), work / f"{name}.pt")
