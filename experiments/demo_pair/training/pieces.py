"""How the drafts begin: as pieces of the target."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import WhisperForConditionalGeneration

from experiments.demo_pair import model as models
from experiments.demo_pair.data.tokenizer import Vocabulary
from experiments.demo_pair.training.schedule import LESSONS

TARGET_IDS = Vocabulary.of(with_cantonese=True)
TINY_IDS = Vocabulary.of(with_cantonese=False)
CANTONESE = TARGET_IDS.transcribe - 2  # `<|yue|>`, the last language before the tasks
# Of the layers that learnt from the beginning, the last: it knows where it is in the audio.
LOCATING_LAYER = LESSONS[0].depth - 1
TINY_LAYERS = (LOCATING_LAYER,)
DISTIL_LAYERS = (0, LOCATING_LAYER)
FEED_FORWARD = models.TINY["decoder_ffn"]  # of both drafts' decoder layers


def to_tiny(ids: torch.Tensor) -> torch.Tensor:
    """Translate tokens to the vocabulary without `<|yue|>`; -100 stays."""
    return torch.where(ids > CANTONESE, ids - 1, ids)


def to_target(ids: torch.Tensor) -> torch.Tensor:
    """Translate tokens from the vocabulary without `<|yue|>`."""
    return torch.where(ids >= CANTONESE, ids + 1, ids)


def without_cantonese(logits: torch.Tensor) -> torch.Tensor:
    """Cut the target's logits down to the draft's vocabulary."""
    return torch.cat([logits[..., :CANTONESE], logits[..., CANTONESE + 1 :]], dim=-1)


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


def decoder_layers(target: WhisperForConditionalGeneration, kept: Sequence[int]) -> nn.ModuleList:
    """Copy some of the target's decoder layers, narrower inside."""
    layers = nn.ModuleList([copy.deepcopy(target.model.decoder.layers[index]) for index in kept])
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = index
        narrow_feed_forward(layer, FEED_FORWARD)
    return layers


def distil_from(target: WhisperForConditionalGeneration) -> WhisperForConditionalGeneration:
    """Copy the target with few decoder layers and a frozen encoder."""
    draft = copy.deepcopy(target)
    draft.model.decoder.layers = decoder_layers(target, DISTIL_LAYERS)
    draft.config.decoder_layers = len(DISTIL_LAYERS)
    draft.config.decoder_ffn_dim = FEED_FORWARD
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
    ours.decoder.layers = decoder_layers(target, TINY_LAYERS)
    ours.decoder.layer_norm.load_state_dict(theirs.decoder.layer_norm.state_dict())
    ours.decoder.embed_positions.load_state_dict(theirs.decoder.embed_positions.state_dict())
    rows = theirs.decoder.embed_tokens.weight
    ours.decoder.embed_tokens.weight.data = torch.cat([rows[:CANTONESE], rows[CANTONESE + 1 :]]).clone()
    tiny.tie_weights()
    return tiny
