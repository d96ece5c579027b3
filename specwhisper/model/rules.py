"""Whisper's decoding rules on logits, each row with its own prefix.

They are those of transformers' processors: begin-suppress, suppress, and timestamps
(``WhisperTimeStampLogitsProcessor``). They depend on the tokens before, so row i of a block uses the prefix
committed + candidates[:i]. Draft and target run the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from specwhisper.model.arrays import Array, Device, add_rows, fill, logsumexp, take_rows, to_device, windows
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE


class TimestampState(IntEnum):
    """The timestamp state after a prefix; each state forbids a fixed set of ids."""

    UNTIMED_START = 0  # without timestamps: only the suppression rules apply
    UNTIMED = 1
    START = 2  # a timestamp must follow
    SEGMENT = 3  # text or a timestamp may follow
    PAUSE = 4  # a segment has ended: the same timestamp, a later one or end-of-text may follow

    @property
    def is_timed(self) -> bool:
        return self >= TimestampState.START


class Allowed(NamedTuple):
    """Tokens that may follow a prefix: by state, and timestamps between two indices."""

    state: TimestampState
    first_time: int
    last_time: int


class DecodingRules:
    """Applies a vocabulary's suppression and timestamp rules.

    Parameters
    ----------
    on_device : the device of the logits; by default they are NumPy's.
    absent : ids that the model does not have.
    """

    def __init__(
        self, vocabulary: Vocabulary, on_device: Device = None, *, absent: Sequence[int] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._begin = vocabulary.timestamp_begin
        self._num_times = len(vocabulary) - self._begin
        # Both tables hold 0 or -inf, to add to logits: by state, and by how many timestamps are left.
        self._forbidden = to_device(self._forbidden_by_state(absent), on_device)
        step = np.zeros(2 * self._num_times, np.float32)
        step[: self._num_times] = -np.inf
        self._too_early = windows(to_device(step, on_device), self._num_times)

    def _forbidden_by_state(self, absent: Sequence[int]) -> NDArray[np.float32]:
        vocabulary = self._vocabulary
        forbidden = np.zeros((len(TimestampState), len(vocabulary)), np.float32)
        forbidden[:, [*vocabulary.suppress, *absent]] = -np.inf
        starts = [[TimestampState.UNTIMED_START], [TimestampState.START]]
        forbidden[starts, list(vocabulary.begin_suppress)] = -np.inf
        if vocabulary.no_timestamps is not None:
            forbidden[TimestampState.START :, vocabulary.no_timestamps] = -np.inf
        forbidden[TimestampState.START, : self._begin] = -np.inf
        forbidden[TimestampState.PAUSE, : vocabulary.end_of_text] = -np.inf
        return forbidden

    def allowed(
        self,
        prefix: Sequence[int],
        following: Sequence[int],
        *,
        timestamps: bool,
        max_initial_timestamp: int | None = None,
    ) -> Iterator[Allowed]:
        """Yield what may follow ``prefix``, ``prefix + following[:1]`` and so on.

        ``max_initial_timestamp``: last timestamp index that a window may begin with; ``None`` for the model's
        own.
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
        """Return what may follow, by the last two tokens' types and the last time."""
        last_index = self._num_times - 1
        if last_time is None:
            return Allowed(TimestampState.SEGMENT, 0, last_index)
        if not last:  # within a segment: only later timestamps
            return Allowed(TimestampState.SEGMENT, last_time + 1, last_index)
        if length == 1 or before:  # a segment has begun: text must follow
            return Allowed(TimestampState.SEGMENT, self._num_times, last_index)
        return Allowed(TimestampState.PAUSE, last_time, last_index)

    def apply(self, logits: Array, allowed: Sequence[Allowed]) -> None:
        """Set forbidden logits to -inf, in place.

        Parameters
        ----------
        logits : float32, rows x vocabulary.
        allowed : one for each row.
        """
        rows = to_device(allowed, device(logits))
        states, first_times = rows[:, 0], rows[:, 1]
        add_rows(logits, self._forbidden, states)
        if not any(row.state.is_timed for row in allowed):
            return
        text = logits[:, : self._begin]
        for i, row in enumerate(allowed):
            if row.state is TimestampState.START:
                logits[i, self._begin + row.last_time + 1 :] = -np.inf
        # Added out of place: logsumexp is faster on contiguous rows.
        times = logits[:, self._begin :] + take_rows(self._too_early, self._num_times - first_times)
        logits[:, self._begin :] = times
        # If all timestamps together are likelier than any text token, a timestamp follows.
        is_time = logsumexp(times)[:, 0] > array_namespace(text).max(text, axis=-1)
        fill(text, is_time & (states >= TimestampState.START), -np.inf)


def max_initial_timestamp(options: DecodingOptions) -> int | None:
    """Return the last timestamp index for a window's start; ``None``: the model's."""
    if options.max_initial_timestamp_s is None:
        return None
    return round(options.max_initial_timestamp_s * SAMPLE_RATE / (HOP_SAMPLES * FRAMES_PER_TIMESTAMP))
