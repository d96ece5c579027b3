"""A checkpoint of any format as transformers' own model, for its ``generate``."""

from __future__ import annotations

from dataclasses import asdict

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.pytorch.placement import read_tensor


def as_transformers(checkpoint: Checkpoint) -> WhisperForConditionalGeneration:
    """Return the checkpoint's weights and rules in transformers' model, in float32."""
    vocabulary = checkpoint.vocabulary
    ids = {
        "pad_token_id": vocabulary.end_of_text,
        "bos_token_id": vocabulary.end_of_text,
        "eos_token_id": vocabulary.end_of_text,
        "decoder_start_token_id": vocabulary.start_of_transcript,
    }
    config = WhisperConfig(**asdict(checkpoint.sizes) | ids, suppress_tokens=None, begin_suppress_tokens=None)
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    weights = {name: read_tensor(checkpoint, name).float() for name in checkpoint.weights}
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    multilingual = {
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": id_ for code, id_ in vocabulary.languages.items()},
        "task_to_id": dict(vocabulary.tasks),
    }
    model.generation_config = GenerationConfig(
        **ids,
        max_length=vocabulary.max_length,
        suppress_tokens=list(vocabulary.suppress),
        begin_suppress_tokens=list(vocabulary.begin_suppress),
        no_timestamps_token_id=vocabulary.no_timestamps,
        prev_sot_token_id=vocabulary.start_of_prev,
        max_initial_timestamp_index=vocabulary.max_initial_timestamp,
        return_timestamps=False,
        alignment_heads=[list(head) for head in checkpoint.alignment_heads],
        **(multilingual if vocabulary.languages else {"is_multilingual": False}),
    )
    return model.eval()
