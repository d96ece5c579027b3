"""Whisper models in transformers' classes, with a training forward for windows of any length."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.models.whisper.modeling_whisper import sinusoids

from specwhisper.model.checkpoints.names import DEMO_FOLDER


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
