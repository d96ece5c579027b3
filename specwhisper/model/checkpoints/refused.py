"""Refuse a generation config's values that change the text and are not followed.

With them, transformers' ``generate`` writes another text with one beam. Values without effect pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from specwhisper.errors import CheckpointError

# Fields that no option of a transcription stands for, each with its values without effect; None has none.
REFUSED: Mapping[str, Collection[Any]] = {
    "repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "min_length": (0, 1),  # a prompt is as long
    "min_new_tokens": (0,),
    "min_p": (0.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0, 1.0),
    "eta_cutoff": (0.0, 1.0),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0,),
    "token_healing": (False,),
    "is_assistant": (False,),
    "cache_implementation": ("dynamic", "static", "offloaded", "offloaded_static", "hybrid"),
    **dict.fromkeys(("bad_words_ids", "sequence_bias", "constraints", "force_words_ids"), ()),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"), ()),
    **dict.fromkeys(("max_time", "stop_strings", "top_h", "dola_layers", "watermarking_config"), ()),
}


def refuse(
    name: str, file: str, values: Mapping[str, Any], refused: Mapping[str, Collection[Any]] = REFUSED
) -> None:
    """Raise an error for the fields of a file that would change the text.

    ``file``: the name of the file that holds the values.
    """
    set_fields = list(_with_effect(values, refused))
    if set_fields:
        raise CheckpointError(
            f"The {file} of model '{name}' sets {', '.join(set_fields)}, which would change the text and is "
            "not offered: remove it from a copy of the model, and load that folder."
        )


def _with_effect(values: Mapping[str, Any], refused: Mapping[str, Collection[Any]]) -> Iterable[str]:
    for field, neutral in refused.items():
        value = values.get(field)
        if value is not None and value not in neutral:
            yield f"{field}={value!r}"
