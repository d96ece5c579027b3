"""Teaches some cross-attention heads where in the window each token is spoken.

Left alone, the decoder learns sentences long before it learns to find the later ones of a full window,
and invents them. The windows' sentence times are known, so a token's time is too, to within a few tenths of a
second; one head in each of some layers is rewarded for looking there. Those heads are the model's
``alignment_heads``, from which word times are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers import WhisperForConditionalGeneration

ALIGNMENT_LAYERS = (1, 2, 3)  # those that learn from the beginning, but for the first; head 0 of each
REACH_S = 0.4  # how far from its time a token may look
POSITION_S = 0.02  # one encoder position
MIN_MASS = 1e-3


def alignment_heads(num_layers: int) -> list[tuple[int, int]]:
    """Return layer and head of those that align."""
    return [(layer, 0) for layer in ALIGNMENT_LAYERS if layer < num_layers] or [(0, 0)]


def spread(lengths: Sequence[int], start: float, end: float) -> list[float]:
    """Place tokens evenly between two moments, by the letters that each has; give their middles."""
    total = sum(lengths)
    times, before = [], 0
    for length in lengths:
        times.append(start + (before + length / 2) / total * (end - start))
        before += length
    return times


class AlignmentLoss:
    """Watches the aligning heads of a model: keeps what their queries are made of in each forward pass."""

    def __init__(self, whisper: WhisperForConditionalGeneration) -> None:
        self._attentions: list[nn.Module] = []
        self._queries: dict[nn.Module, torch.Tensor] = {}
        layers = whisper.model.decoder.layers
        for layer, _ in alignment_heads(len(layers)):
            attention = layers[layer].encoder_attn
            attention.register_forward_pre_hook(self._watch, with_kwargs=True)
            self._attentions.append(attention)

    def _watch(self, attention: nn.Module, args: tuple, kwargs: dict) -> None:
        self._queries[attention] = args[0] if args else kwargs["hidden_states"]

    def __call__(self, encoded: torch.Tensor, offsets: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log of the attention that falls near each token's time.

        ``encoded`` is windows x positions x width, ``offsets`` the first position of each window, and
        ``times`` windows x tokens in seconds, NaN where a token has none.
        """
        positions = (offsets[:, None] + torch.arange(encoded.shape[1])) * POSITION_S
        near = ((positions[:, None, :] - times[:, :, None]).abs() <= REACH_S).float()
        use = near.any(dim=-1)
        if not use.any():
            return torch.zeros(())
        losses = []
        for attention in self._attentions:
            width = attention.head_dim  # head 0 is the first of them
            query = attention.q_proj(self._queries[attention])[..., :width] * width**-0.5
            key = attention.k_proj(encoded)[..., :width]
            weights = (query @ key.transpose(1, 2)).float().softmax(dim=-1)
            mass = (weights * near).sum(dim=-1)[use]
            losses.append(-(mass + MIN_MASS).log().mean())
        return torch.stack(losses).mean()
