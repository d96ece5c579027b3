"""Shapes of the published checkpoints."""

from __future__ import annotations

from dataclasses import replace

from experiments.common.models.checkpoints import Shape


def _published(d_model: int, heads: int, encoder_layers: int, decoder_layers: int) -> Shape:
    return Shape(
        d_model=d_model,
        heads=heads,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        ffn_factor=4,
        words="multilingual",
        scale=0.18 * (64 / d_model) ** 0.5,  # states as large as in the small shapes
    )


LARGE_V2 = _published(1280, 20, 32, 32)
LARGE_V3 = replace(LARGE_V2, num_mel_bins=128, cantonese=True)
PUBLISHED = {
    "tiny": _published(384, 6, 4, 4),
    "base": _published(512, 8, 6, 6),
    "small": _published(768, 12, 12, 12),
    "medium": _published(1024, 16, 24, 24),
    "large-v2": LARGE_V2,
    "large-v3": LARGE_V3,
    "turbo": replace(LARGE_V3, decoder_layers=4),
}
