"""Whisper's decoding rules on logits, each row with its own prefix.

They forbid what transformers' processors forbid: begin-suppress, suppress, timestamps
(``WhisperTimeStampLogitsProcessor``). What may follow depends on the tokens before it, so row i of a
candidate block sees committed + candidates[:i]. Draft and target run this same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from specwhisper.model.transfer import to_device
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE


class TimestampState(IntEnum):
    """Where in the text a prefix ends; each situation forbids a fixed set of ids."""

    UNTIMED_START = 0  # without timestamps only the suppression rules apply
    UNTIMED = 1
    START = 2  # a time comes first
    SEGMENT = 3  # text or time
    PAUSE = 4  # a segment has just ended: its twin, a later time or the end of the text

    @property
    def is_timed(self) -> bool:
        """Whether the timestamp rules apply."""
        return self >= TimestampState.START


class Allowed(NamedTuple):
    """What may follow a prefix: what the situation leaves, and of the times those between two indices."""

    situation: TimestampState
    first_time: int
    last_time: int


class DecodingRules:
    """Applies a vocabulary's suppression and timestamp rules.

    Parameters
    ----------
    absent : ids that the model does not have.
    """

    def __init__(
        self, vocabulary: Vocabulary, device: torch.device | None = None, *, absent: Sequence[int] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._begin = vocabulary.timestamp_begin
        self._num_times = len(vocabulary) - self._begin
        # Both tables are added to logits, 0 or -inf: by situation, and by how many times are left.
        self._forbidden = self._situations(absent).to(device)
        step = torch.zeros(2 * self._num_times, device=device)
        step[: self._num_times] = -torch.inf
        self._too_early = step.unfold(0, self._num_times, 1)

    def _situations(self, absent: Sequence[int]) -> Tensor:
        vocabulary = self._vocabulary
        forbidden = torch.zeros(len(TimestampState), len(vocabulary))
        forbidden[:, [*vocabulary.suppress, *absent]] = -torch.inf
        starts = [[TimestampState.UNTIMED_START], [TimestampState.START]]
        forbidden[starts, list(vocabulary.begin_suppress)] = -torch.inf
        if vocabulary.no_timestamps is not None:
            forbidden[TimestampState.START :, vocabulary.no_timestamps] = -torch.inf
        forbidden[TimestampState.START, : self._begin] = -torch.inf
        forbidden[TimestampState.PAUSE, : vocabulary.end_of_text] = -torch.inf
        return forbidden

    def allowed(
        self,
        prefix: Sequence[int],
        following: Sequence[int],
        *,
        timestamps: bool,
        max_initial_timestamp: int | None = None,
    ) -> Iterator[Allowed]:
        """Give what may follow ``prefix``, ``prefix + following[:1]``, ... up to all of ``following``.

        ``max_initial_timestamp`` is the last index a window may begin with; ``None`` for the model's own.
        """
        begin, last_index = self._begin, self._num_times - 1
        if not timestamps:
            for length in range(len(prefix), len(prefix) + len(following) + 1):
                yield Allowed(
                    TimestampState.UNTIMED if length else TimestampState.UNTIMED_START, 0, last_index
                )
            return
        if max_initial_timestamp is None:
            max_initial_timestamp = self._vocabulary.max_initial_timestamp
        if max_initial_timestamp is None:
            max_initial_timestamp = last_index
        last_time = next((token - begin for token in reversed(prefix) if token >= begin), None)
        before, last = (token >= begin for token in (0, 0, *prefix[-2:])[-2:])
        for length in range(len(prefix), len(prefix) + len(following) + 1):
            if length > len(prefix):
                token = following[length - len(prefix) - 1]
                before, last = last, token >= begin
                last_time = token - begin if last else last_time
            if length == 0:
                yield Allowed(TimestampState.START, 0, min(max_initial_timestamp, last_index))
            else:
                yield self._after(length, before, last, last_time)

    def _after(self, length: int, before: bool, last: bool, last_time: int | None) -> Allowed:
        """Judge a prefix by whether its last two tokens are times, and by its last time."""
        last_index = self._num_times - 1
        if last_time is None:
            return Allowed(TimestampState.SEGMENT, 0, last_index)
        if not last:  # within a segment: time moves on
            return Allowed(TimestampState.SEGMENT, last_time + 1, last_index)
        if length == 1 or before:  # a segment has just begun: text must follow
            return Allowed(TimestampState.SEGMENT, self._num_times, last_index)
        return Allowed(TimestampState.PAUSE, last_time, last_index)

    def apply(self, logits: Tensor, allowed: Sequence[Allowed]) -> None:
        """Forbid in ``logits`` (rows x vocabulary, float32, changed in place) what each row may not say."""
        situations, first_times, _ = to_device(allowed, logits.device).unbind(1)
        logits += self._forbidden.index_select(0, situations)
        if not any(row.situation.is_timed for row in allowed):
            return
        text = logits[:, : self._begin]
        for i, row in enumerate(allowed):
            if row.situation is TimestampState.START:
                logits[i, self._begin + row.last_time + 1 :] = -torch.inf
        # Added out of place: logsumexp is faster on rows that lie side by side.
        times = logits[:, self._begin :] + self._too_early.index_select(0, self._num_times - first_times)
        logits[:, self._begin :] = times
        # When time as a whole is likelier than any single text token, it is time.
        is_time = times.logsumexp(dim=-1) > text.amax(dim=-1)
        text.masked_fill_((is_time & (situations >= TimestampState.START))[:, None], -torch.inf)


def max_initial_timestamp(options: DecodingOptions) -> int | None:
    """Give the last timestamp index a window may begin with; ``None`` for the model's own."""
    if options.max_initial_timestamp_s is None:
        return None
    return round(options.max_initial_timestamp_s * SAMPLE_RATE / (HOP_SAMPLES * FRAMES_PER_TIMESTAMP))
