"""Distilling the two drafts: both begin as pieces of the target and learn its answers on fresh windows."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import WhisperForConditionalGeneration

from . import model as models
from . import parallel
from .batches import make_batch, prefetch
from .checkpoint import Checkpoint
from .corpus import Corpus
from .model import Recognizer, token_loss
from .optimizer import Optimizer
from .phonemes import Phonemes
from .schedule import LESSONS, Schedule
from .tokenizer import Vocabulary, build_tokenizer
from .train import step
from .windows import Transcriber, WindowMaker

WINDOW_LENGTHS_S = {8.0: 0.35, 15.0: 0.25, 30.0: 0.4}
PEAK_RATE = 2e-3
# Of the layers that learnt from the beginning, the last: it knows where it is in the audio.
DECODER_LAYER = LESSONS[0].depth - 1
TARGET_IDS = Vocabulary.of(with_cantonese=True)
TINY_IDS = Vocabulary.of(with_cantonese=False)
CANTONESE = TARGET_IDS.transcribe - 2  # `<|yue|>`, the last language before the tasks


def load_target(work: Path) -> Recognizer:
    """Load the trained target."""
    target = Recognizer(models.build(TARGET_IDS, **models.TARGET), Phonemes.load(work).size)
    target.load_state_dict(torch.load(work / "target.pt"))
    return target.eval()


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


def with_one_layer(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Copy the target with one decoder layer and a frozen encoder."""
    draft = copy.deepcopy(target)
    draft.model.decoder.layers = nn.ModuleList([draft.model.decoder.layers[DECODER_LAYER]])
    layer = draft.model.decoder.layers[0]
    layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = 0
    draft.config.decoder_layers = 1
    for parameter in draft.model.encoder.parameters():
        parameter.requires_grad = False
    return draft


def tiny_from(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Begin the small draft from what fits: fewer layers, fewer mel bins, a smaller vocabulary."""
    tiny = models.build(TINY_IDS, **models.TINY)
    theirs, ours = target.model, tiny.model
    bins = functional.interpolate(
        theirs.encoder.conv1.weight.permute(2, 0, 1), models.TINY["mels"], mode="linear"
    )
    scale = models.TARGET["mels"] / models.TINY["mels"]
    ours.encoder.conv1.weight.data = (bins * scale).permute(1, 2, 0).contiguous()
    ours.encoder.conv1.bias.data.copy_(theirs.encoder.conv1.bias)
    ours.encoder.conv2.load_state_dict(theirs.encoder.conv2.state_dict())
    ours.encoder.layer_norm.load_state_dict(theirs.encoder.layer_norm.state_dict())
    kept = (
        np.linspace(0, models.TARGET["encoder_layers"] - 1, models.TINY["encoder_layers"]).round().astype(int)
    )
    for layer, index in zip(ours.encoder.layers, kept, strict=True):
        layer.load_state_dict(theirs.encoder.layers[index].state_dict())
    ours.decoder.layers[0].load_state_dict(theirs.decoder.layers[DECODER_LAYER].state_dict())
    ours.decoder.layer_norm.load_state_dict(theirs.decoder.layer_norm.state_dict())
    ours.decoder.embed_positions.load_state_dict(theirs.decoder.embed_positions.state_dict())
    rows = theirs.decoder.embed_tokens.weight
    ours.decoder.embed_tokens.weight.data = torch.cat([rows[:CANTONESE], rows[CANTONESE + 1 :]]).clone()
    tiny.tie_weights()
    return tiny


def train_drafts(work: Path, minutes: float, seed: int) -> None:
    """Train both drafts at once: what is expensive is to ask the target."""
    torch.manual_seed(seed)
    target = load_target(work)
    drafts = nn.ModuleDict(
        {
            "draft-tiny": Recognizer(tiny_from(target.whisper), 0),
            "draft-distil": Recognizer(with_one_layer(target.whisper), 0),
        }
    )
    tiny, distil = drafts["draft-tiny"], drafts["draft-distil"]
    maker = WindowMaker(Corpus.load(work))
    tokenizer = build_tokenizer(work / "bpe", with_cantonese=True)
    transcriber = Transcriber(tokenizer, TARGET_IDS, Phonemes.load(work))
    schedule = Schedule(minutes, PEAK_RATE, warmup=50)
    optimizer = Optimizer(drafts)
    checkpoint = Checkpoint(work / "drafts.state.pt", schedule, optimizer, weights=drafts)
    drafts.train()

    def make(rng: np.random.Generator):
        limit = rng.choice(list(WINDOW_LENGTHS_S), p=list(WINDOW_LENGTHS_S.values()))
        return make_batch(maker, transcriber, float(limit), rng)

    totals = np.zeros(3)
    seeds = [6, seed, parallel.rank(), round(1e4 * schedule.begin)]
    for count, batch in enumerate(prefetch(make, seeds), 1):
        with torch.no_grad():
            encoded = target.encode(batch.features(models.TARGET["mels"]), batch.offsets)
            wanted = target.decode(batch.tokens, encoded)
        labels = torch.where(batch.labels >= 0, wanted.argmax(-1), -100)
        heard = tiny.encode(batch.features(models.TINY["mels"]), batch.offsets)
        hearing_loss = functional.mse_loss(heard, encoded)
        tiny_loss = distillation_loss(
            tiny.decode(to_tiny(batch.tokens), heard), without_cantonese(wanted), to_tiny(labels)
        )
        distil_loss = distillation_loss(distil.decode(batch.tokens, encoded), wanted, labels)
        numbers = [hearing_loss.item(), tiny_loss.item(), distil_loss.item()]
        flags = [float(checkpoint.is_due), float(schedule.progress >= 1.0)]
        loss = hearing_loss + tiny_loss + distil_loss
        *means, due, over = step(drafts, optimizer, loss, schedule.next_rate(), [*numbers, *flags])
        if due or over:
            checkpoint.save()
        totals += means
        if count % 50 == 0:
            if parallel.rank() == 0:
                hearing, tiny_mean, distil_mean = totals / 50
                print(
                    f"step {count} {schedule.progress:.1%}: hearing {hearing:.3f} tiny {tiny_mean:.3f} "
                    f"distil {distil_mean:.3f}",
                    flush=True,
                )
            totals[:] = 0
        if over:
            break
    if parallel.rank() == 0:
        for name, draft in drafts.items():
            torch.save(draft.whisper.state_dict(), work / f"{name}.pt")
