"""Whisper checkpoints with random weights, in memory or saved."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration, WhisperTokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS, NON_SPEECH_TOKENS_MULTI
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from experiments.common.models.scripted import weights_in_memory
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.generation import build_vocabulary, check_generation, read_generation
from specwhisper.model.checkpoints.sizes import read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer
from specwhisper.model.checkpoints.weights import complete_weights
from specwhisper.model.pytorch.placement import read_tensor

NUM_TEXT_TOKENS = {"multilingual": 50_257, "gpt2": 50_256}


def asset(name: Literal["multilingual", "gpt2"]) -> Path:
    """Return a vocabulary file of the package, which needs none of its dependencies."""
    for file in files("openai-whisper") or ():
        if file.name == f"{name}.tiktoken":
            return Path(str(file.locate()))
    raise FileNotFoundError(f"openai-whisper has no {name}.tiktoken")


@cache
def published_vocabulary(
    name: Literal["multilingual", "gpt2"],
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return token ids by string, and the merges."""
    return TikTokenConverter(str(asset(name))).extract_vocab_merges_from_model(str(asset(name)))


def non_speech(name: Literal["multilingual", "gpt2"]) -> tuple[int, ...]:
    published = NON_SPEECH_TOKENS if name == "gpt2" else NON_SPEECH_TOKENS_MULTI
    return tuple(token for token in published if token < NUM_TEXT_TOKENS[name])


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


SENTENCES = (
    "the quick brown fox jumps over the lazy dog",
    "she sells sea shells by the sea shore",
    "how much wood would a woodchuck chuck",
)
Words = Literal["few", "bytes", "multilingual", "gpt2", "made-up"]
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")


NON_SPEECH = {
    "few": (1, 2, 7, 50),
    "bytes": (1, 2, 7, 50),
    "multilingual": non_speech("multilingual"),
    "gpt2": non_speech("gpt2"),
    "made-up": non_speech("multilingual"),
}


@dataclass(frozen=True)
class Shape:
    """Shape, vocabulary and seed of a random checkpoint.

    ``words`` is the text vocabulary: a few words, single bytes, that of Whisper's ``.en`` models or its
    multilingual one;
    ``made-up`` has the size of the latter, for machines without its files.
    """

    num_mel_bins: int = 80
    cantonese: bool = False
    english_only: bool = False
    d_model: int = 64
    heads: int = 2
    encoder_layers: int = 1
    decoder_layers: int = 2
    max_initial_timestamp: int | None = 50
    max_target_positions: int = 448
    scale: float = 0.18  # standard deviation of the weights: large enough for clear choices
    seed: int = 0
    words: Words = "few"
    ffn_factor: int = 2  # published checkpoints have 4


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


@cache
def _bpe(words: Words) -> tuple[dict[str, int], list[tuple[str, str]]]:
    if words == "made-up":
        return {f"w{i}": i for i in range(NUM_TEXT_TOKENS["multilingual"])}, []
    if words not in ("few", "bytes"):
        return published_vocabulary(words)
    bpe = ByteLevelBPETokenizer()
    size = 300 if words == "few" else 256
    bpe.train_from_iterator(SENTENCES, vocab_size=size, min_frequency=1, show_progress=False)
    content = json.loads(bpe.to_str())["model"]
    return content["vocab"], [tuple(merge) for merge in content["merges"]]


def special_tokens(shape: Shape) -> list[str]:
    languages = [code for code in LANGUAGES if shape.cantonese or code != "yue"]
    return [f"<|{name}|>" for name in ("endoftext", "startoftranscript", *languages, *TASKS)]


def build_tokenizer(shape: Shape) -> WhisperTokenizer:
    """Build a byte-level tokenizer with Whisper's special tokens after its text tokens."""
    vocab, merges = _bpe(shape.words)
    specials = special_tokens(shape)
    tokenizer = WhisperTokenizer(vocab=vocab, merges=merges)
    added = [AddedToken(token, normalized=False, special=True) for token in specials]
    tokenizer.add_tokens(added, special_tokens=True)
    tokenizer.add_special_tokens({"additional_special_tokens": specials[1:], "pad_token": "<|endoftext|>"})
    tokenizer.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", normalized=False) for i in range(1501)])
    return tokenizer


def config_of(shape: Shape, end: int, size: int) -> WhisperConfig:
    """Return the configuration of a shape: ``end`` is end-of-text, ``size`` that of the vocabulary."""
    return WhisperConfig(
        vocab_size=size,
        num_mel_bins=shape.num_mel_bins,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.ffn_factor * shape.d_model,
        decoder_ffn_dim=shape.ffn_factor * shape.d_model,
        max_target_positions=shape.max_target_positions,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=end + 1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )


def build_model(shape: Shape) -> tuple[WhisperForConditionalGeneration, list[str]]:
    specials = special_tokens(shape)
    vocab, _ = _bpe(shape.words)
    end = len(vocab)
    ids = {token: end + i for i, token in enumerate(specials)}
    config = config_of(shape, end, end + len(specials) + 1501)
    torch.manual_seed(shape.seed)
    model = WhisperForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=shape.scale)
        else:
            parameter.data += torch.randn_like(parameter) * 0.05
    model.generation_config = _generation_config(shape, ids, end)
    strings = [None] * end
    for token, i in vocab.items():
        strings[i] = token
    return model.eval(), [*strings, *specials, *(f"<|{i * 0.02:.2f}|>" for i in range(1501))]


def _generation_config(shape: Shape, ids: dict[str, int], end: int) -> GenerationConfig:
    multilingual = {
        "lang_to_id": {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES if f"<|{code}|>" in ids},
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "is_multilingual": True,
    }
    return GenerationConfig(
        decoder_start_token_id=end + 1,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
        max_length=shape.max_target_positions,
        suppress_tokens=[*NON_SPEECH[shape.words], end + 1, *(ids[f"<|{task}|>"] for task in TASKS[:-1])],
        begin_suppress_tokens=[220, end],
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        max_initial_timestamp_index=shape.max_initial_timestamp,
        return_timestamps=False,
        alignment_heads=[
            [layer, head] for layer in range(shape.decoder_layers) for head in range(shape.heads)
        ],
        **({"is_multilingual": False} if shape.english_only else multilingual),
    )


def checkpoint_from_model(
    model: WhisperForConditionalGeneration,
    tokens: Sequence[str],
    *,
    name: str,
    tokenizer: WhisperTokenizer | None = None,
) -> Checkpoint:
    """Build a checkpoint that shares the weights of a transformers model.

    ``tokens`` are its token strings in id order.
    """
    config = model.config.to_dict()
    sizes = read_sizes(name, config)
    generation = read_generation(model.generation_config.to_dict(), config)
    check_generation(name, generation)
    weights = weights_in_memory({key: _array(tensor) for key, tensor in model.state_dict().items()})
    return Checkpoint(
        name=name,
        sizes=sizes,
        vocabulary=build_vocabulary(name, tokens, sizes, generation),
        weights=complete_weights(name, weights, sizes),
        dtype=str(model.dtype).removeprefix("torch."),
        max_new_tokens=generation.max_new_tokens,
        tokenizer=None if tokenizer is None else Tokenizer(tokenizer.backend_tokenizer),
        alignment_heads=generation.alignment_heads(sizes),
    )


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers as :class:`Weights` stores them, without a copy on a CPU."""
    on_host = tensor.detach().cpu()
    return (on_host.view(torch.uint16) if on_host.dtype is torch.bfloat16 else on_host).numpy()


def build_checkpoint(
    shape: Shape, name: str = "random"
) -> tuple[WhisperForConditionalGeneration, Checkpoint]:
    """Build a random model for transformers and for us, with the same weights."""
    model, tokens = build_model(shape)
    return model, checkpoint_from_model(model, tokens, name=name)


def save_checkpoint(shape: Shape, folder: Path) -> Path:
    model, _ = build_model(shape)
    model.save_pretrained(folder)
    build_tokenizer(shape).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=shape.num_mel_bins).save_pretrained(folder)
    return folder


def perturbed(
    model: WhisperForConditionalGeneration, tokens: Sequence[str], *, noise: float, name: str = "noisy"
) -> Checkpoint:
    """Return the model with noise on its weights: a draft that is mostly right."""
    return checkpoint_from_model(with_noise(model, noise), tokens, name=name)


def with_noise(model: WhisperForConditionalGeneration, noise: float) -> WhisperForConditionalGeneration:
    noisy = copy.deepcopy(model)
    torch.manual_seed(1)
    for parameter in noisy.parameters():
        parameter.data += torch.randn_like(parameter) * noise
    return noisy
