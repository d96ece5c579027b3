"""Add the facts about published Whisper models that their files do not state."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from specwhisper.model.checkpoints.generation import NUM_TIMESTAMPS, Generation
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.tokenizer import END_OF_TEXT, Tokenizer

logger = logging.getLogger(__name__)

# In the order of their tokens.
LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg "
    "lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so "
    "af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
).split()
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech")
NUM_LANGUAGES = {51_864: 99, 51_865: 99, 51_866: 100}  # by the number of tokens
ENGLISH_END_OF_TEXT = 50_256  # multilingual models have 50257
# (layer, head) whose cross-attention follows the speech, by encoder layers, decoder layers, width and tokens.
ALIGNMENT_HEADS = {
    (4, 4, 384, 51_864): ("tiny.en", "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4"),
    (4, 4, 384, 51_865): ("tiny", "2.2 3.0 3.2 3.3 3.4 3.5"),
    (6, 6, 512, 51_864): ("base.en", "3.3 4.7 5.1 5.5 5.7"),
    (6, 6, 512, 51_865): ("base", "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6"),
    (12, 12, 768, 51_864): (
        "small.en",
        "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 11.2 11.4",
    ),
    (12, 12, 768, 51_865): ("small", "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5"),
    (24, 24, 1024, 51_864): (
        "medium.en",
        "11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0 20.3 20.9 20.14 21.12",
    ),
    (24, 24, 1024, 51_865): ("medium", "13.15 15.4 15.15 16.1 20.0 23.4"),
    (32, 32, 1280, 51_865): (  # large-v1 has the same shape and other heads
        "large-v2",
        "10.12 13.17 16.11 16.12 16.13 17.15 17.16 18.4 18.11 18.19 19.11 21.2 21.3 22.3 22.9 22.12 23.5 "
        "23.7 23.13 25.5 26.1 26.12 27.15",
    ),
    (32, 32, 1280, 51_866): ("large-v3", "7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6"),
    (32, 4, 1280, 51_866): ("large-v3-turbo", "2.4 2.11 3.3 3.6 3.11 3.14"),
}
# What is not speech, as openai-whisper lists it. The first token of a miscellaneous symbol is suppressed:
# in UTF-8 it is shared by symbols only.
SYMBOLS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *"<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(),
]
MISCELLANEOUS = "♩♪♫♬♭♮♯"


def special_tokens(num_tokens: int) -> list[str]:
    """Return the special tokens of a vocabulary, in their order."""
    if num_tokens not in NUM_LANGUAGES:
        known = ", ".join(map(str, NUM_LANGUAGES))
        raise ValueError(f"it has {num_tokens} tokens, not {known} as published models have")
    names = ["startoftranscript", *LANGUAGES[: NUM_LANGUAGES[num_tokens]], *TASKS, "notimestamps"]
    names += [f"{i * 0.02:.2f}" for i in range(NUM_TIMESTAMPS)]
    return [END_OF_TEXT, *(f"<|{name}|>" for name in names)]


def generation_of(
    name: str, sizes: ModelSizes, tokenizer: Tokenizer, stated: Mapping[str, Any] | None = None
) -> Generation:
    """Return what a generation_config.json would hold.

    ``stated``: the values that the model's files state; ``None`` stands for a missing one.
    """
    tokens = tokenizer.tokens()
    ids = {token: i for i, token in enumerate(tokens)}
    if END_OF_TEXT not in ids or "<|startoftranscript|>" not in ids:
        raise ValueError("its tokenizer is none of Whisper's")
    values: dict[str, Any] = {
        "eos_token_id": ids[END_OF_TEXT],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "no_timestamps_token_id": ids.get("<|notimestamps|>"),
        "prev_sot_token_id": ids.get("<|startofprev|>"),
        "max_length": 448,
        "max_initial_timestamp_index": 50,  # 1 s
    }
    values |= {key: value for key, value in (stated or {}).items() if value is not None}
    if "suppress_tokens" not in values or "begin_suppress_tokens" not in values:
        logger.info("Model '%s' names no suppressed tokens: they are those of openai-whisper.", name)
        values.setdefault("suppress_tokens", _suppressed(tokenizer, ids))
        values.setdefault("begin_suppress_tokens", [*tokenizer.encode(" "), ids[END_OF_TEXT]])
    if "alignment_heads" not in values:
        values["alignment_heads"] = _alignment_heads(name, sizes)
    languages = values.pop("languages", None)
    if languages is None:
        languages = [ids[token] for code in LANGUAGES if (token := f"<|{code}|>") in ids]
    # English-only models have the languages' tokens too.
    if languages and ids[END_OF_TEXT] != ENGLISH_END_OF_TEXT:
        values["lang_to_id"] = {tokens[i]: i for i in languages if i in range(len(tokens))}
        values["task_to_id"] = {task: ids[f"<|{task}|>"] for task in TASKS[:2] if f"<|{task}|>" in ids}
    return Generation(values, {})


def _suppressed(tokenizer: Tokenizer, ids: Mapping[str, int]) -> list[int]:
    found = {tokenizer.encode(" -")[0], tokenizer.encode(" '")[0]}  # at the beginning of a word only
    for symbol in (*SYMBOLS, *MISCELLANEOUS):
        for tokens in map(tokenizer.encode, (symbol, f" {symbol}")):
            if len(tokens) == 1 or symbol in MISCELLANEOUS:
                found.add(tokens[0])
    names = ("startoftranscript", *TASKS, "nocaptions")  # the old name of <|nospeech|>
    return sorted(found | {ids[token] for token in (f"<|{name}|>" for name in names) if token in ids})


def _alignment_heads(name: str, sizes: ModelSizes) -> Sequence[tuple[int, ...]]:
    shape = (sizes.encoder_layers, sizes.decoder_layers, sizes.d_model, sizes.vocab_size)
    if shape not in ALIGNMENT_HEADS:
        logger.warning(
            "Model '%s' names no alignment heads, and no published model has its shape: it finds no word "
            "times.",
            name,
        )
        return ()
    published, heads = ALIGNMENT_HEADS[shape]
    logger.info(
        "Model '%s' names no alignment heads: they are those of %s, which has its shape.", name, published
    )
    return [tuple(map(int, head.split("."))) for head in heads.split()]
