"""Batched greedy decoding with Whisper's timestamp rules, for windows already on hand."""

from __future__ import annotations

import torch
from transformers import DynamicCache, EncoderDecoderCache, WhisperForConditionalGeneration

from experiments.demo_pair.data.tokenizer import Vocabulary

LATEST_FIRST = 50


def _apply_rules(logits: torch.Tensor, tokens: torch.Tensor, given: int, v: Vocabulary) -> None:
    """Timestamps come in pairs, never go back, and the first is within the first second."""
    logits[:, v.start : v.first_timestamp] = -torch.inf
    for row, sequence in zip(logits, tokens[:, given:].tolist(), strict=True):
        if not sequence:
            row[: v.first_timestamp] = -torch.inf
            row[v.first_timestamp + LATEST_FIRST + 1 :] = -torch.inf
            continue
        is_time = [token >= v.first_timestamp for token in sequence]
        if is_time[-1]:
            if len(sequence) < 2 or is_time[-2]:
                row[v.first_timestamp :] = -torch.inf
            else:
                row[: v.end] = -torch.inf
        times = [token for token, time in zip(sequence, is_time, strict=True) if time]
        # A closing timestamp may repeat as the next opening one; any other has to be later.
        earliest = times[-1] if is_time[-1] else times[-1] + 1
        row[v.first_timestamp : earliest] = -torch.inf
        scores = row.log_softmax(-1)
        if scores[v.first_timestamp :].logsumexp(-1) > scores[: v.first_timestamp].max():
            row[: v.first_timestamp] = -torch.inf


@torch.inference_mode()
def greedy(
    whisper: WhisperForConditionalGeneration,
    encoded: torch.Tensor,
    vocabulary: Vocabulary,
    most: int = 220,
) -> list[list[int]]:
    """Transcripts with timestamps of encoded windows, without the start tokens."""
    v = vocabulary
    given = torch.tensor([[v.start, v.english, v.transcribe]])
    tokens = given.repeat(len(encoded), 1)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    step_input = tokens
    done = torch.zeros(len(encoded), dtype=torch.bool)
    for _ in range(most):
        hidden = whisper.model.decoder(
            input_ids=step_input,
            encoder_hidden_states=encoded,
            cache=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        logits = whisper.proj_out(hidden).float()
        _apply_rules(logits, tokens, given.shape[1], v)
        step_input = logits.argmax(-1).masked_fill(done, v.end)[:, None]
        tokens = torch.cat([tokens, step_input], dim=1)
        done |= step_input[:, 0] == v.end
        if done.all():
            break
    rows = tokens[:, given.shape[1] :].tolist()
    return [row[: row.index(v.end) + 1] if v.end in row else row for row in rows]
