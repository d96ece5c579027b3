"""Whisper models in transformers' classes, trained on windows of any length, and heads that align.

Left alone, the decoder learns sentences long before it learns to find the later ones of a full window,
and invents them. The windows' sentence times are known, so a token's time is too, to within a few tenths of a
second; one head in each of some layers is rewarded for looking there. Those heads are the model's
``alignment_heads``, from which word times are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.models.whisper.modeling_whisper import sinusoids

from specwhisper.model.checkpoints.names import DEMO_FOLDER

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


def load_config(name: str) -> WhisperConfig:
    return WhisperConfig.from_pretrained(DEMO_FOLDER / name)


def build(config: WhisperConfig) -> WhisperForConditionalGeneration:
    model = WhisperForConditionalGeneration(config)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d) and module is not model.proj_out:
            # transformers' 0.02 is meant for wide models; a narrow one takes long to leave it.
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
    for layer in [*model.model.encoder.layers, *model.model.decoder.layers]:
        layer.self_attn.out_proj.weight.data *= 0.4
        layer.fc2.weight.data *= 0.4
    positions = model.model.encoder.embed_positions
    positions.weight.data.copy_(sinusoids(config.max_source_positions, config.d_model))
    return model


def make_identities(model: WhisperForConditionalGeneration, first: int) -> None:
    """Make decoder layers pass on what they get, from ``first`` on, so that they can join a training late."""
    for layer in model.model.decoder.layers[first:]:
        for last in (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)


class Recognizer(nn.Module):
    """A Whisper model with a CTC head on its encoder, which is dropped after training.

    CTC writes phonemes: these are learnt much sooner than a thousand word pieces.
    """

    def __init__(self, whisper: WhisperForConditionalGeneration, phonemes: int) -> None:
        super().__init__()
        self.whisper = whisper
        self.num_mels = whisper.config.num_mel_bins
        self.ctc_head = nn.Linear(whisper.config.d_model, phonemes + 1)

    def encode(self, features: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Run the encoder on windows shorter than 30 s too, which transformers refuses.

        `offsets` has the position at which each of them begins, as if cut from a longer window.
        """
        encoder = self.whisper.model.encoder
        hidden = functional.gelu(encoder.conv1(features))
        hidden = functional.gelu(encoder.conv2(hidden)).transpose(1, 2)
        positions = torch.arange(hidden.shape[1]) + offsets[:, None]
        hidden = hidden + encoder.embed_positions.weight[positions]
        for layer in encoder.layers:
            hidden = layer(hidden, None)
        return encoder.layer_norm(hidden)

    def decode(self, tokens: torch.Tensor, encoded: torch.Tensor, depth: int | None = None) -> torch.Tensor:
        """Return logits of the next token at every position, by the first ``depth`` layers or all of them."""
        decoder = self.whisper.model.decoder
        layers = decoder.layers
        decoder.layers = layers[:depth]
        hidden = decoder(input_ids=tokens, encoder_hidden_states=encoded, use_cache=False).last_hidden_state
        decoder.layers = layers
        return self.whisper.proj_out(hidden)

    def ctc_loss(self, encoded: torch.Tensor, phonemes: list[list[int]], use: torch.Tensor) -> torch.Tensor:
        """Return the CTC loss per phoneme, over the windows marked in `use`."""
        logits = self.ctc_head(encoded).float().log_softmax(-1).transpose(0, 1)
        lengths = torch.tensor([len(row) for row in phonemes])
        targets = torch.tensor([symbol for row in phonemes for symbol in row])
        steps = torch.full((len(phonemes),), logits.shape[0])
        blank = self.ctc_head.out_features - 1
        losses = functional.ctc_loss(
            logits, targets, steps, lengths, blank=blank, reduction="none", zero_infinity=True
        )
        weight = use.float()
        return (losses * weight).sum() / (lengths * weight).sum().clamp(min=1)


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
