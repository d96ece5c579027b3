"""Memory of a checkpoint and of a session, from its shape alone."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.models.checkpoints import Shape

AUDIO_POSITIONS = 1_500
# Of words and special tokens: multilingual checkpoints have one language more from large-v3 on.
VOCABULARY = 51_865
BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}


def num_weights(shape: Shape) -> int:
    """Count the numbers of a multilingual checkpoint."""
    width, hidden = shape.d_model, shape.d_model * shape.ffn_factor
    norm = 2 * width
    attention = 4 * width**2 + 3 * width  # keys have no bias
    feed_forward = 2 * width * hidden + hidden + width
    convolutions = 3 * width * (shape.num_mel_bins + width) + 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    encoder = convolutions + AUDIO_POSITIONS * width + shape.encoder_layers * encoder_layer + norm
    words = (VOCABULARY + shape.cantonese) * width  # read on the way in, and once more on the way out
    positions = shape.max_target_positions * width
    return encoder + words + positions + shape.decoder_layers * decoder_layer + norm


def slot_bytes(shape: Shape, dtype: str, cross_cache: str | None = None) -> int:
    """Return a session's memory: keys and values of its tokens and of its encoded window.

    Parameters
    ----------
    cross_cache : a type of one byte in which the latter are kept, with a scale of two for each head.
    """
    number = BYTES[dtype]
    token_bytes = shape.max_target_positions * shape.d_model * number
    window_bytes = AUDIO_POSITIONS * shape.d_model * number
    if cross_cache is not None:
        window_bytes = AUDIO_POSITIONS * (shape.d_model + 2 * shape.heads)
    return 2 * (token_bytes + window_bytes) * shape.decoder_layers


def num_sessions(
    memory_bytes: float, shape: Shape, dtype: str, cross_cache: str | None = None, *, reserved_bytes: float
) -> int:
    """Return the number of sessions that fit beside the weights; one slot is for padding."""
    free = memory_bytes - reserved_bytes - num_weights(shape) * BYTES[dtype]
    return max(0, int(free // slot_bytes(shape, dtype, cross_cache)) - 1)
