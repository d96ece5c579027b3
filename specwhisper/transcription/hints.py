"""Hints of a session: in the words and times of its vocabulary, and on their way to servers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from specwhisper.errors import InvalidRequest, UnsupportedOption, check_between
from specwhisper.options import MAX_HINT_BYTES, DecodingOptions
from specwhisper.speculation.hints import LiveHint, ScriptHint, is_unspaced
from specwhisper.speculation.ledger import SharedHints
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import MAX_HINT_TEXT_BYTES, SAMPLE_RATE, Mode, TimedHint


def with_times(
    vocabulary: Vocabulary, timestamps: bool, committed: Sequence[int], tokens: Sequence[int]
) -> Sequence[int]:
    """Return the continuation of a hint with the times that must be there.

    A window begins with a time, mostly 0. One that ends a segment is mostly repeated as the next one's start.
    A hint from outside has neither.
    """
    is_timestamp = vocabulary.is_timestamp
    if not timestamps or not tokens:
        return tokens
    if not committed:
        return tokens if is_timestamp(tokens[0]) else [vocabulary.timestamp_begin, *tokens]
    time = committed[-1]
    if not is_timestamp(time) or len(committed) == 1 or is_timestamp(committed[-2]):  # text follows
        return tokens
    return [time, *(tokens[1:] if is_timestamp(tokens[0]) else tokens)]


@dataclass(frozen=True, slots=True)
class HintBuilder:
    """Makes the hints of a model's sessions."""

    vocabulary: Vocabulary
    tokenize: Callable[..., Sequence[int]]  # :meth:`specwhisper.model.model.Model.tokenize`

    def of_session(
        self, mode: Mode, options: DecodingOptions, token_share: Callable[[], float]
    ) -> SharedHints:
        return SharedHints(
            self.vocabulary.word_of,
            partial(with_times, self.vocabulary, options.timestamps),
            script=self.script(options.hint) if options.hint else None,
            keeps_sent=mode is Mode.FULL,
            token_share=token_share,
        )

    def script(self, text: str) -> ScriptHint:
        return ScriptHint(text, self._tokens_of, self.vocabulary.word_of)

    def live(self) -> LiveHint:
        """Return a hint for texts with times."""
        return LiveHint(self._tokens_of, self.vocabulary.word_of)

    def _tokens_of(self, text: str) -> Sequence[int]:
        """Return the tokens of a text; none if it cannot be tokenized, since that must not end a session."""
        text = text.strip()
        try:
            return self.tokenize(text, after_space=not text or not is_unspaced(text[0]))
        except UnsupportedOption:
            return ()


MAX_START_S = 1e8  # three years


class HintFeed:
    """Keeps hints, of the latest audio, until a server takes them, and repeats them for the next one.

    A hint that another one has replaced before it was taken is never sent.
    """

    def __init__(self) -> None:
        self._kept: list[TimedHint] = []  # in order of their times
        self._num_taken = 0  # the first of them
        self._num_bytes = 0

    def put(self, hint: TimedHint) -> None:
        """Add a hint, which replaces all text from its time on."""
        index = bisect_left(self._kept, hint.start_sample, key=lambda kept: kept.start_sample)
        self._num_bytes += _size(hint) - sum(map(_size, self._kept[index:]))
        self._kept[index:] = [hint]
        self._num_taken = min(self._num_taken, index)
        while self._num_bytes > MAX_HINT_BYTES:
            self._num_bytes -= _size(self._kept.pop(0))
            self._num_taken = max(0, self._num_taken - 1)

    def take(self, most: int | None = None) -> list[TimedHint]:
        """Return hints that were not taken yet, those of the earliest audio first."""
        new = self._kept[self._num_taken :][:most]
        self._num_taken += len(new)
        return new

    def restart(self, start_sample: int = 0) -> None:
        """Begin again, for another server, with all that may be said after a given sample."""
        later = bisect_right(self._kept, start_sample, key=lambda kept: kept.start_sample)
        self._num_taken = max(0, later - 1)


def _size(hint: TimedHint) -> int:
    return len(hint.text.encode()) + 16  # the time


def hint_at(start_s: float, text: str) -> TimedHint:
    """Return a hint for the audio that begins at ``start_s``; raise as :func:`check_hint`."""
    check_between("start_s", start_s, 0, MAX_START_S)
    return check_hint(TimedHint(round(start_s * SAMPLE_RATE), text))


def check_hint(hint: TimedHint) -> TimedHint:
    """Return a hint that may be sent.

    Raise :class:`InvalidRequest` for a text that is too long or not Unicode, or a time after all audio.
    """
    check_between("start_sample", hint.start_sample, 0, MAX_START_S * SAMPLE_RATE)
    try:
        num_bytes = len(hint.text.encode())
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise InvalidRequest(f"A hint is not valid Unicode: {error}.") from error
    if num_bytes > MAX_HINT_TEXT_BYTES:
        raise InvalidRequest(f"A hint has {num_bytes} bytes: send at most {MAX_HINT_TEXT_BYTES} at once.")
    return hint
