"""Writes a trained model as a transformers Whisper folder in half precision."""

from __future__ import annotations

from pathlib import Path

from transformers import (
    GenerationConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from experiments.demo_pair.data.tokenizer import TEXT_TOKENS, TIMESTAMPS, build_tokenizer, languages
from experiments.demo_pair.training.alignment import alignment_heads

# The symbols of Whisper's own list of what is not speech; hyphen and apostrophe occur in words.
NON_SPEECH = '"#()*+/:;<=>@[\\]^_`{|}~'


def non_speech_tokens(tokenizer: WhisperTokenizer) -> list[int]:
    """Find the text tokens that consist of nothing but non-speech symbols."""
    texts = [(i, tokenizer.decode([i]).strip()) for i in range(TEXT_TOKENS)]
    return [i for i, text in texts if text and set(text) <= set(NON_SPEECH)]


def generation_config(
    model: WhisperForConditionalGeneration, tokenizer: WhisperTokenizer, with_cantonese: bool
) -> GenerationConfig:
    """Write what Whisper's generate() must know of the vocabulary."""

    def of(name: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(f"<|{name}|>"))

    never = ("startoftranscript", "translate", "transcribe", "startoflm", "startofprev", "nospeech")
    return GenerationConfig(
        is_multilingual=True,
        lang_to_id={f"<|{code}|>": of(code) for code in languages(with_cantonese)},
        task_to_id={task: of(task) for task in ("transcribe", "translate")},
        no_timestamps_token_id=of("notimestamps"),
        prev_sot_token_id=of("startofprev"),
        decoder_start_token_id=of("startoftranscript"),
        bos_token_id=of("endoftext"),
        eos_token_id=of("endoftext"),
        pad_token_id=of("endoftext"),
        suppress_tokens=[*non_speech_tokens(tokenizer), *(of(name) for name in never)],
        begin_suppress_tokens=[
            int(tokenizer.convert_tokens_to_ids("Ġ")),
            of("endoftext"),
        ],
        alignment_heads=[list(head) for head in alignment_heads(model.config.decoder_layers)],
        max_initial_timestamp_index=50,
        max_length=448,
        return_timestamps=False,
    )


def export(model: WhisperForConditionalGeneration, bpe: Path, folder: Path, with_cantonese: bool) -> None:
    """Save weights, configurations, tokenizer and feature extractor."""
    tokenizer = build_tokenizer(bpe, with_cantonese)
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"{len(tokenizer)} tokens for a model of {model.config.vocab_size}")
    model.generation_config = generation_config(model, tokenizer, with_cantonese)
    model.eval().half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Other Whisper tools read the vocabulary from these two; tokenizer.json has it as well.
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_bytes((bpe / name).read_bytes())
    mels = model.config.num_mel_bins
    WhisperFeatureExtractor(feature_size=mels).save_pretrained(folder)
    assert tokenizer.convert_tokens_to_ids("<|0.00|>") == len(tokenizer) - TIMESTAMPS
