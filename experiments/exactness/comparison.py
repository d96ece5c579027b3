"""Differences between a transcription and the oracle's text, and between two transcriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from transformers import WhisperTokenizer

from experiments.exactness.oracle import TIME_STEP_S, OracleSegment, OracleText
from specwhisper.transcription.segments import FRAME_S
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment

PROB_STEP = 1e-3
HALF_STEP_S = 0.0051  # ours are rounded to 10 ms


def differences(
    texts: Sequence[Transcription], oracles: Sequence[OracleText], tokenizer: WhisperTokenizer | None = None
) -> list[str]:
    """Compare tokens exactly, times of segments to 10 ms, those of words to 20 ms, probabilities to 0.001.

    The times of transformers' words are float32.
    """
    found = []
    for text, expected in zip(texts, oracles, strict=True):
        if text.window_tokens != expected.window_tokens:
            found.append(f"windows {text.window_tokens} instead of {expected.window_tokens}")
            continue
        found += _unlike_probabilities(text, expected)
        spoken = [segment for segment in expected.segments if segment.tokens]
        if [segment.tokens for segment in text.segments] != [segment.tokens for segment in spoken]:
            found.append("the same windows, but other segments")
            continue
        end_s = text.duration_s  # where ours are cut off
        last_end_s = 0.0  # where ours begin at the earliest
        for ours, theirs in zip(text.segments, spoken, strict=True):
            # theirs may begin before the window or the end of the last segment, see docs/exactness.md
            start_s = min(max(theirs.start_s, ours.seek * FRAME_S, last_end_s), end_s)
            times = start_s, max(start_s, min(theirs.end_s, end_s))
            last_end_s = times[1]
            if max(abs(ours.start_s - times[0]), abs(ours.end_s - times[1])) > HALF_STEP_S:
                found.append(f"segment at {ours.start_s} to {ours.end_s} s instead of {theirs}")
            if tokenizer is not None and theirs.ends_s:
                found += _word_differences(ours, theirs, tokenizer)
    return found


def _unlike_probabilities(text: Transcription, expected: OracleText) -> Iterator[str]:
    """Compare language probabilities, and the values by which windows are judged."""
    theirs = expected.language_probs
    if theirs.keys() != text.language_probs.keys() or any(
        abs(text.language_probs[code] - prob) > PROB_STEP for code, prob in theirs.items()
    ):
        yield f"languages {text.language_probs} instead of {theirs}"
    for window in expected.windows:
        for name in ("avg_logprob", "no_speech_prob"):
            wanted = getattr(window, name)
            for segment in text.segments:
                if wanted is None or segment.seek != window.start_frame:
                    continue
                if abs(getattr(segment, name) - wanted) > PROB_STEP:
                    yield f"{name} {getattr(segment, name)} instead of {wanted} at {segment.start_s} s"


def _word_differences(ours: Segment, theirs: OracleSegment, tokenizer: WhisperTokenizer) -> list[str]:
    """Words begin where the token before them ends, and end with their last one."""
    end_of_text = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    spoken = [i for i, token in enumerate(theirs.tokens) if token < end_of_text]

    def decoded(places: Sequence[int]) -> str:
        ids = [theirs.tokens[i] for i in places]
        return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)) if ids else ""

    found, at = [], 0
    for word in ours.words:
        start = at
        while at < len(spoken) and word.text != decoded(spoken[start:at]):
            at += 1
        if word.text != decoded(spoken[start:at]):
            return [f"word {word.text!r} is not in {theirs}"]
        first, last = spoken[start], spoken[at - 1]
        start_s = theirs.ends_s[first - 1] if first else theirs.start_s
        if max(abs(word.start_s - start_s), abs(word.end_s - theirs.ends_s[last])) > TIME_STEP_S + 1e-5:
            found.append(f"{word} instead of {start_s} to {theirs.ends_s[last]} s")
    if at < len(spoken):
        found.append(f"words end before {theirs} does")
    return found


def unlike(texts: Sequence[Transcription], expected: Sequence[Transcription]) -> list[str]:
    found = []
    for i, (ours, theirs) in enumerate(zip(texts, expected, strict=True)):
        if ours.window_tokens != theirs.window_tokens:
            found.append(f"recording {i} has other tokens")
        elif _without_probabilities(ours) != _without_probabilities(theirs):
            found.append(f"recording {i} has other segments")
    return found


def _without_probabilities(text: Transcription) -> list[tuple[Any, ...]]:
    """Return segments without probabilities, whose last digits depend on the width of a forward pass."""
    return [
        (s.start_s, s.end_s, s.tokens, [(w.start_s, w.end_s, w.text) for w in s.words]) for s in text.segments
    ]
