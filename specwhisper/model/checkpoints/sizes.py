"""The sizes of a Whisper model, by the names that a config.json has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from specwhisper.errors import CheckpointError
from specwhisper.types import FRAMES_PER_TIMESTAMP, WINDOW_FRAMES

POSITIONS = WINDOW_FRAMES // FRAMES_PER_TIMESTAMP  # in a window of 30 s


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes of a model, by transformers' names.

    Those with a default may be left out of a config.json; the defaults are transformers'. Its decoder makes
    no use of ``scale_embedding``, so that is not among them.

    Attributes
    ----------
    vocab_size : rows of the embedding.
    d_model : width of hidden states.
    max_source_positions : encoder positions of a window; always :data:`POSITIONS`.
    max_target_positions : most tokens of a window.
    median_filter_width : positions, for word times; odd.
    tie_word_embeddings : whether a checkpoint may leave out the projection to logits, which is the embedding.
    """

    vocab_size: int
    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    num_mel_bins: int = 80
    max_source_positions: int = POSITIONS
    max_target_positions: int = 448
    median_filter_width: int = 7
    activation_function: str = "gelu"
    tie_word_embeddings: bool = True


def read_sizes(name: str, config: Mapping[str, Any], *, source: str = "config.json") -> ModelSizes:
    """Read the sizes of model ``name`` from its config.

    ``source``: what holds the sizes, for errors.
    """
    values: dict[str, Any] = {}
    for field in fields(ModelSizes):
        if field.name in config:
            values[field.name] = _checked(name, source, field.name, config[field.name], of_type=field.type)
        elif field.default is MISSING:
            raise CheckpointError(
                f"The {source} of model '{name}' has no {field.name}: fetch or save it again."
            )
    sizes = ModelSizes(**values)
    for heads in (sizes.encoder_attention_heads, sizes.decoder_attention_heads):
        if sizes.d_model % heads:
            raise CheckpointError(
                f"The {source} of model '{name}' divides d_model={sizes.d_model} by {heads} attention "
                "heads, which leaves a remainder: fetch or save it again."
            )
    if sizes.max_source_positions != POSITIONS:
        raise CheckpointError(
            f"The {source} of model '{name}' has max_source_positions={sizes.max_source_positions}, but "
            f"windows of 30 s have {POSITIONS}: choose a model for windows of 30 s."
        )
    if not sizes.median_filter_width % 2:
        raise CheckpointError(
            f"The {source} of model '{name}' has median_filter_width={sizes.median_filter_width}, which "
            "must be odd: fetch or save it again."
        )
    return sizes


def _checked(name: str, source: str, key: str, value: Any, *, of_type: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_valid, expected = {
        "int": (is_number and value > 0, "a whole number above 0"),
        "bool": (isinstance(value, bool), "true or false"),
        "str": (isinstance(value, str), "a name"),
    }[of_type]
    if is_valid:
        return value
    raise CheckpointError(
        f"The {source} of model '{name}' has {key}={value!r}, which must be {expected}: "
        "fetch or save it again."
    )
