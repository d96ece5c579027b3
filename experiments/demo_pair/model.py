"""Whisper models in transformers' classes, with a training forward for windows of any length."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from transformers import WhisperConfig, WhisperForConditionalGeneration

from experiments.demo_pair.data.tokenizer import Vocabulary

TARGET = {"width": 192, "heads": 3, "encoder_layers": 4, "decoder_layers": 8, "mels": 128}
TINY = {"width": 192, "heads": 3, "encoder_layers": 4, "decoder_layers": 1, "mels": 80, "decoder_ffn": 128}


def sinusoids(length: int, channels: int) -> torch.Tensor:
    """Whisper's fixed encoder positions."""
    step = math.log(10_000) / (channels // 2 - 1)
    rates = torch.exp(-step * torch.arange(channels // 2))
    angles = torch.arange(length)[:, None] * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def build(
    vocabulary: Vocabulary,
    width: int,
    heads: int,
    encoder_layers: int,
    decoder_layers: int,
    mels: int,
    decoder_ffn: int | None = None,
) -> WhisperForConditionalGeneration:
    """Make a new model with random weights; decoder layers are four times as wide inside by default."""
    config = WhisperConfig(
        vocab_size=vocabulary.size,
        num_mel_bins=mels,
        d_model=width,
        encoder_layers=encoder_layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_layers=decoder_layers,
        decoder_attention_heads=heads,
        decoder_ffn_dim=decoder_ffn or 4 * width,
        num_hidden_layers=encoder_layers,
        max_source_positions=1500,
        max_target_positions=448,
        decoder_start_token_id=vocabulary.start,
        bos_token_id=vocabulary.end,
        eos_token_id=vocabulary.end,
        pad_token_id=vocabulary.end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d) and module is not model.proj_out:
            # transformers' 0.02 is meant for wide models; a narrow one takes long to leave it.
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
    layers = [*model.model.encoder.layers, *model.model.decoder.layers]
    for layer in layers:
        layer.self_attn.out_proj.weight.data *= 0.4
        layer.fc2.weight.data *= 0.4
    positions = model.model.encoder.embed_positions
    positions.weight.data.copy_(sinusoids(config.max_source_positions, width))
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
        self.ctc_head = nn.Linear(whisper.config.d_model, phonemes + 1)

    def encode(self, features: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
        """Run the encoder on windows shorter than 30 s too, which transformers refuses.

        `offsets` has the position at which each of them begins, as if cut from a longer window.
        """
        encoder = self.whisper.model.encoder
        hidden = functional.gelu(encoder.conv1(features))
        hidden = functional.gelu(encoder.conv2(hidden)).transpose(1, 2)
        positions = torch.arange(hidden.shape[1])
        if offsets is not None:
            positions = positions + offsets[:, None]
        hidden = hidden + encoder.embed_positions.weight[positions]
        for layer in encoder.layers:
            hidden = layer(hidden, None)
        return encoder.layer_norm(hidden)

    def decode(self, tokens: torch.Tensor, encoded: torch.Tensor, depth: int | None = None) -> torch.Tensor:
        """Logits of the next token at every position, by the first ``depth`` layers or all of them."""
        decoder = self.whisper.model.decoder
        layers = decoder.layers
        decoder.layers = layers[:depth]
        hidden = decoder(input_ids=tokens, encoder_hidden_states=encoded, use_cache=False).last_hidden_state
        decoder.layers = layers
        return self.whisper.proj_out(hidden)

    def ctc_loss(self, encoded: torch.Tensor, phonemes: list[list[int]], use: torch.Tensor) -> torch.Tensor:
        """CTC loss per phoneme, over the windows marked in `use`."""
        logits = self.ctc_head(encoded).float().log_softmax(-1).transpose(0, 1)
        lengths = torch.tensor([len(row) for row in phonemes])
        targets = torch.tensor([symbol for row in phonemes for symbol in row])
        steps = torch.full((len(phonemes),), logits.shape[0])
        losses = functional.ctc_loss(
            logits,
            targets,
            steps,
            lengths,
            blank=self.ctc_head.out_features - 1,
            reduction="none",
            zero_infinity=True,
        )
        weight = use.float()
        return (losses * weight).sum() / (lengths * weight).sum().clamp(min=1)


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy over the labelled positions."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
