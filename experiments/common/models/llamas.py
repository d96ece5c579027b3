"""Llama models with random weights, in memory or saved."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.common.models.checkpoints import SENTENCES


def llama_tokenizer(size: int = 300) -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer on a few sentences."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def llama(
    layers: int, seed: int, size: int = 300, *, width: int = 64, positions: int = 96, scale: float = 0.2
) -> LlamaForCausalLM:
    """Build a model with random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=scale)
    return model


def shortened(target: LlamaForCausalLM, layers: int, weight: float) -> LlamaForCausalLM:
    """Make a draft of a model's first layers; scale the model's upper layers to ``weight``.

    Models with random weights never agree otherwise.
    """
    for layer in target.model.layers[layers:]:
        layer.self_attn.o_proj.weight.data *= weight
        layer.mlp.down_proj.weight.data *= weight
    draft = copy.deepcopy(target)
    draft.model.layers = draft.model.layers[:layers]
    draft.config.num_hidden_layers = layers
    return draft


def save_llama(model: LlamaForCausalLM, folder: Path, size: int = 300) -> str:
    """Save a model with its tokenizer."""
    model.save_pretrained(folder)
    llama_tokenizer(size).save_pretrained(folder)
    return str(folder)
