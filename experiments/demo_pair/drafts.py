"""Distilling the two drafts: pieces of the target, which learn its continuations of prefixes of both.

A draft that only ever saw right prefixes goes astray after its first own mistake. So it writes every other
batch of windows alone, and the target continues each prefix that this makes.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationConfig, GenerationMixin, WhisperForConditionalGeneration
from transformers.generation import WhisperTimeStampLogitsProcessor
from transformers.modeling_outputs import BaseModelOutput

from experiments.demo_pair import model as models
from experiments.demo_pair import processes
from experiments.demo_pair.batches import Batch, make_batch, prefetch
from experiments.demo_pair.corpus import Corpus
from experiments.demo_pair.model import AlignmentLoss, Recognizer, token_loss
from experiments.demo_pair.target import REPORT_STEPS, load_target
from experiments.demo_pair.training import LESSONS, Schedule, Training, mixed
from experiments.demo_pair.vocabulary import (
    TARGET_IDS,
    TINY_IDS,
    Phonemes,
    Vocabulary,
    load_tokenizer,
    to_target,
    to_tiny,
    without_cantonese,
)
from experiments.demo_pair.windows import Transcriber, WindowMaker
from specwhisper.model.checkpoints.names import DEMO_FOLDER

# The last of the layers that learnt from the beginning: it knows where it is in the audio.
LOCATING_LAYER = LESSONS[0].depth - 1
TINY_LAYERS = (LOCATING_LAYER,)
DISTIL_LAYERS = (0, LOCATING_LAYER)
WINDOW_LENGTHS_S = {8.0: 0.25, 15.0: 0.25, 30.0: 0.5}
PEAK_RATE = 2e-3
HOLD = 0.5
OWN_PREFIXES_FROM = 0.15  # before, a draft writes no prefix worth continuing
ALIGNMENT_WEIGHT = 0.25
TOKENS_PER_SECOND = 7.5  # a transcript is cut here, lest one that repeats itself continues
MOST_TOKENS = 220


def narrow_feed_forward(layer: nn.Module, width: int) -> None:
    """Keep those inner units of a layer that weigh most."""
    weights = layer.fc1.weight.norm(dim=1) * layer.fc2.weight.norm(dim=0)
    kept = weights.topk(width).indices.sort().values
    inner, outer = layer.fc1, layer.fc2
    layer.fc1 = nn.Linear(inner.in_features, width)
    layer.fc2 = nn.Linear(width, outer.out_features)
    layer.fc1.weight.data.copy_(inner.weight[kept])
    layer.fc1.bias.data.copy_(inner.bias[kept])
    layer.fc2.weight.data.copy_(outer.weight[:, kept])
    layer.fc2.bias.data.copy_(outer.bias)


def decoder_layers(target: WhisperForConditionalGeneration, kept: Sequence[int], width: int) -> nn.ModuleList:
    """Copy some of the target's decoder layers, narrower inside."""
    layers = nn.ModuleList([copy.deepcopy(target.model.decoder.layers[index]) for index in kept])
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = index
        narrow_feed_forward(layer, width)
    return layers


def distil_from(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Copy the target with few decoder layers and a frozen encoder."""
    draft = copy.deepcopy(target)
    draft.config = models.load_config("draft-distil")
    draft.model.decoder.layers = decoder_layers(target, DISTIL_LAYERS, draft.config.decoder_ffn_dim)
    for parameter in draft.model.encoder.parameters():
        parameter.requires_grad = False
    return draft


def tiny_from(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Begin the small draft from what fits: fewer layers, fewer mel bins, a smaller vocabulary."""
    tiny = models.build(models.load_config("draft-tiny"))
    theirs, ours = target.model, tiny.model
    bins = theirs.encoder.conv1.weight.permute(2, 0, 1)
    scale = target.config.num_mel_bins / tiny.config.num_mel_bins
    stretched = functional.interpolate(bins, tiny.config.num_mel_bins, mode="linear") * scale
    ours.encoder.conv1.weight.data = stretched.permute(1, 2, 0).contiguous()
    ours.encoder.conv1.bias.data.copy_(theirs.encoder.conv1.bias)
    for part in ("conv2", "layers", "layer_norm"):
        getattr(ours.encoder, part).load_state_dict(getattr(theirs.encoder, part).state_dict())
    ours.decoder.layers = decoder_layers(target, TINY_LAYERS, tiny.config.decoder_ffn_dim)
    for part in ("layer_norm", "embed_positions"):
        getattr(ours.decoder, part).load_state_dict(getattr(theirs.decoder, part).state_dict())
    rows = without_cantonese(theirs.decoder.embed_tokens.weight.T).T
    ours.decoder.embed_tokens.weight.data = rows.contiguous().clone()
    tiny.tie_weights()
    return tiny


def distillation_loss(draft: torch.Tensor, target: torch.Tensor, use: torch.Tensor) -> torch.Tensor:
    """Return cross entropy against the target's choice plus divergence, where ``use`` is true."""
    drafted, wanted = draft[use].float(), target[use].float()
    divergence = functional.kl_div(
        drafted.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    return token_loss(drafted[None], wanted.argmax(-1)[None]) + divergence


def own_prefixes(
    draft: WhisperForConditionalGeneration, encoded: torch.Tensor, v: Vocabulary
) -> tuple[torch.Tensor, torch.Tensor]:
    """Let a draft write encoded windows greedily, under Whisper's timestamp rules.

    Returns decoder inputs, windows x tokens, and at which positions the next token is to be learnt.
    """
    config = GenerationConfig(
        max_new_tokens=min(MOST_TOKENS, 10 + int(TOKENS_PER_SECOND * encoded.shape[1] / 50)),
        eos_token_id=v.end,
        pad_token_id=v.end,
        no_timestamps_token_id=v.no_timestamps,
        max_initial_timestamp_index=50,
        suppress_tokens=list(range(v.start, v.first_timestamp)),
    )
    # Single steps gain nothing from bfloat16, and every one of them would convert the weights again.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        tokens = GenerationMixin.generate(  # Whisper's own takes whole recordings
            draft,
            encoder_outputs=BaseModelOutput(encoded.detach().float()),
            decoder_input_ids=torch.tensor([v.head] * len(encoded)),
            generation_config=config,
            logits_processor=[WhisperTimeStampLogitsProcessor(config, len(v.head))],
        )[:, :-1]
    use = (tokens == v.end).cumsum(1) == 0  # no token is to be learnt after the end
    use[:, : len(v.head) - 1] = False
    return tokens, use


class Distillation:
    """The losses of both drafts on a batch, after right prefixes or after what each draft wrote itself."""

    def __init__(self, target: Recognizer, drafts: nn.ModuleDict) -> None:
        self.target, self.tiny, self.distil = target, drafts["draft-tiny"], drafts["draft-distil"]
        self._aligning_tiny = AlignmentLoss(self.tiny.whisper)
        self._aligning_distil = AlignmentLoss(self.distil.whisper)

    def losses(self, batch: Batch, own: bool) -> list[torch.Tensor]:
        """Return the losses of tiny's encoder, of tiny's and distil's answers, and of alignment."""
        with torch.no_grad():
            encoded = self.target.encode(batch.features(self.target.num_mels), batch.offsets)
        own_encoded = self.tiny.encode(batch.features(self.tiny.num_mels), batch.offsets)
        if own:
            short, short_use = own_prefixes(self.tiny.whisper, own_encoded, TINY_IDS)
            long, long_use = own_prefixes(self.distil.whisper, encoded, TARGET_IDS)
        else:
            short, long, short_use = to_tiny(batch.tokens), batch.tokens, batch.labels >= 0
            long_use = short_use
        with torch.no_grad():
            after_long = self.target.decode(long, encoded)
            after_short = self.target.decode(to_target(short), encoded) if own else after_long
        tiny = distillation_loss(
            self.tiny.decode(short, own_encoded), without_cantonese(after_short), short_use
        )
        distil = distillation_loss(self.distil.decode(long, encoded), after_long, long_use)
        aligning = torch.zeros(())
        if not own:
            places = (batch.offsets, batch.times)
            aligning = self._aligning_tiny(own_encoded, *places) + self._aligning_distil(encoded, *places)
        return [functional.mse_loss(own_encoded.float(), encoded.float()), tiny, distil, aligning]


def train_drafts(work: Path, minutes: float, seed: int) -> None:
    """Train both drafts at once: what is expensive is to ask the target."""
    torch.manual_seed(seed)
    target = load_target(work)
    tiny, distil = tiny_from(target.whisper), distil_from(target.whisper)
    drafts = nn.ModuleDict({"draft-tiny": Recognizer(tiny, 0), "draft-distil": Recognizer(distil, 0)})
    schedule = Schedule(minutes, PEAK_RATE, warmup=50, hold=HOLD)
    training = Training(schedule, drafts)
    distillation = Distillation(target, drafts)
    drafts.train()
    maker = WindowMaker(Corpus.load(work))
    transcriber = Transcriber(load_tokenizer("target"), TARGET_IDS, Phonemes.load(work))
    turns = count()

    def make(rng: np.random.Generator) -> Batch:
        limit = rng.choice(list(WINDOW_LENGTHS_S), p=list(WINDOW_LENGTHS_S.values()))
        return make_batch(maker, transcriber, float(limit), rng, from_start=next(turns) % 2 == 1)

    batches = prefetch(make, [6, seed, processes.rank()])
    over = False
    while not over:
        batch = next(batches)
        own = processes.agreed(schedule.progress >= OWN_PREFIXES_FROM) and batch.from_start
        with mixed():
            losses = distillation.losses(batch, own)
        loss = losses[0] + losses[1] + losses[2] + ALIGNMENT_WEIGHT * losses[3]
        means, over = training.step(loss, schedule.next_rate(), [part.item() for part in losses])
        if schedule.steps % REPORT_STEPS == 0 and processes.rank() == 0:
            named = zip(("encoder", "tiny", "distil", "alignment"), means, strict=True)
            parts = " ".join(f"{name} {mean:.3f}" for name, mean in named)
            prefixes = "own" if own else "right"
            progress = f"step {schedule.steps}, {schedule.progress:.1%}"
            print(f"{progress}: {parts} after {prefixes} prefixes", flush=True)
    batches.close()
    if processes.rank() == 0:
        for name, draft in drafts.items():
            torch.save(draft.whisper.state_dict(), work / f"{name}.pt")


def export(work: Path, out: Path) -> None:
    """Write the three models as transformers' folders in half precision, with the bundled tokenizers."""
    target = load_target(work).whisper
    models_of = {"target": target, "draft-tiny": tiny_from(target), "draft-distil": distil_from(target)}
    for name, whisper in models_of.items():
        if whisper is not target:
            whisper.load_state_dict(torch.load(work / f"{name}.pt"))
        folder = out / name
        if folder != DEMO_FOLDER / name:
            shutil.copytree(DEMO_FOLDER / name, folder, dirs_exist_ok=True)
        whisper.generation_config = GenerationConfig.from_pretrained(folder)
        whisper.half().save_pretrained(folder)
