"""A deep random target and a shallow draft that agrees with it: realistic costs, chosen acceptance."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

from torch import nn
from transformers import WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

from experiments.common.models.checkpoints import Shape, build_model, build_tokenizer
from experiments.common.models.published import PUBLISHED

DRAFT_LAYERS = 2
UPPER_WEIGHT = 0.05


def save_deep_pair(folder: Path, seed: int) -> tuple[str, str]:
    """Save a target with whisper-small's decoder and a small encoder, and its first layers as a draft.

    Models with random weights never agree, so the target's upper layers are scaled down.
    """
    shape = replace(PUBLISHED["small"], encoder_layers=1, words="few", seed=seed)
    target, _ = build_model(shape)
    for layer in target.model.decoder.layers[DRAFT_LAYERS:]:
        for last in (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2):
            last.weight.data *= UPPER_WEIGHT
            last.bias.data *= UPPER_WEIGHT
    draft = copy.deepcopy(target)
    draft.model.decoder.layers = nn.ModuleList(list(draft.model.decoder.layers)[:DRAFT_LAYERS])
    draft.config.decoder_layers = DRAFT_LAYERS
    draft.generation_config.alignment_heads = None
    return _save(target, shape, folder / "target"), _save(draft, shape, folder / "draft")


def _save(model: WhisperForConditionalGeneration, shape: Shape, folder: Path) -> str:
    model.save_pretrained(folder)
    build_tokenizer(shape).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=shape.num_mel_bins).save_pretrained(folder)
    return str(folder)
