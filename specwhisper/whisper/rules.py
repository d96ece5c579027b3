"""Whisper's decoding rules on logits, each row with its own prefix.

The order is transformers': begin-suppress, suppress, timestamps (``WhisperTimeStampLogitsProcessor``). What a
rule allows depends on the tokens before it, so row i of a candidate block sees committed + candidates[:i].
Draft and target run this same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specwhisper.transcription.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may follow a prefix: text ids from ``text_from`` on, timestamps in ``[time_from, time_to]``.

    ``timed`` is false for sessions without timestamps, to which only the suppression rules apply.
    """

    timed: bool
    is_first: bool
    text_from: int
    time_from: int
    time_to: int


class DecodingRules:
    """Applies a vocabulary's suppression and timestamp rules."""

    def __init__(self, vocabulary: Vocabulary, device: torch.device | None = None) -> None:
        self._vocabulary = vocabulary
        size = len(vocabulary)
        self._ids = torch.arange(size, device=device)
        self._suppressed = torch.zeros(size, device=device)
        self._suppressed[list(vocabulary.suppress)] = -torch.inf
        self._begin_suppressed = torch.zeros(size, device=device)
        self._begin_suppressed[list(vocabulary.begin_suppress)] = -torch.inf

    def allowed(
        self, prefix: Sequence[int], following: Sequence[int], *, timestamps: bool
    ) -> Iterator[Allowed]:
        """Give what may follow ``prefix``, ``prefix + following[:1]``, ... up to all of ``following``."""
        begin, last = self._vocabulary.timestamp_begin, len(self._vocabulary) - 1
        if not timestamps:
            yield from (
                Allowed(False, len(prefix) + i == 0, 0, begin, last) for i in range(len(following) + 1)
            )
            return
        last_time = next((token for token in reversed(prefix) if token >= begin), None)
        tail = [token >= begin for token in prefix[-2:]]  # were the last two tokens timestamps?
        yield self._after(len(prefix), tail, last_time)
        for length, token in enumerate(following, start=len(prefix) + 1):
            tail = [*tail[-1:], token >= begin]
            last_time = token if token >= begin else last_time
            yield self._after(length, tail, last_time)

    def _after(self, length: int, tail: list[bool], last_time: int | None) -> Allowed:
        begin, last = self._vocabulary.timestamp_begin, len(self._vocabulary) - 1
        if length == 0:
            initial = self._vocabulary.max_initial_timestamp
            return Allowed(True, True, begin, begin, last if initial is None else begin + initial)
        if last_time is None:
            return Allowed(True, False, 0, begin, last)
        if not tail[-1]:  # within a segment: time moves on
            return Allowed(True, False, 0, last_time + 1, last)
        if length == 1 or tail[-2]:  # a segment has just begun: text must follow
            return Allowed(True, False, 0, last + 1, last)
        # A segment has just ended: its twin, a later time or the end of the text.
        return Allowed(True, False, self._vocabulary.end_of_text, last_time, last)

    def apply(self, logits: Tensor, allowed: Sequence[Allowed]) -> None:
        """Forbid in ``logits`` (rows x vocabulary, float32, changed in place) what each row may not say."""
        first = [i for i, row in enumerate(allowed) if row.is_first]
        if first:
            logits[first] += self._begin_suppressed
        logits += self._suppressed
        if any(row.timed for row in allowed):
            self._apply_timestamps(logits, allowed)

    def _apply_timestamps(self, logits: Tensor, allowed: Sequence[Allowed]) -> None:
        begin, ids = self._vocabulary.timestamp_begin, self._ids
        bounds = [(row.timed, row.text_from, row.time_from, row.time_to) for row in allowed]
        timed, text_from, time_from, time_to = torch.tensor(bounds, device=logits.device)[:, :, None].unbind(
            1
        )
        timed, times = timed.bool(), ids >= begin
        if self._vocabulary.no_timestamps is not None:
            logits.masked_fill_(timed & (ids == self._vocabulary.no_timestamps), -torch.inf)
        logits.masked_fill_((ids < text_from) | times & ((ids < time_from) | (ids > time_to)), -torch.inf)
        # When time as a whole is likelier than any single text token, it is time.
        time_logit = logits[:, begin:].logsumexp(dim=-1, keepdim=True)
        text_logit = logits[:, :begin].amax(dim=-1, keepdim=True)
        logits.masked_fill_(timed & (time_logit > text_logit) & ~times, -torch.inf)
