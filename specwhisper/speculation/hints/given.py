"""Hints from outside, which run through all windows of a session.

===================  ===============================================================================
Hint                 Text
===================  ===============================================================================
:class:`ScriptHint`  known from the start, without times: captions, a script, an older transcript
:class:`LiveHint`    piece by piece, each with the time of its first word: another recogniser,
                     captions as they appear
===================  ===============================================================================
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import floor
from typing import NamedTuple

from specwhisper.speculation.hints.hint import NUM_MATCHED, Hint

CHUNK_CHARACTERS = 1_000  # tokenized at once, in a millisecond
GIVEN_RATE = 0.9
FIRST_BALANCE, MOST_BALANCE = 0.4, 12.0  # forward passes that wrong tokens may cost
INCOME = 0.01  # forward passes that each committed token adds
MIN_AHEAD = 512  # tokens after the position: more than a window has
MAX_TOKENS = 65_536  # in a hint; further ones are dropped
MAX_OLD = 2_048  # tokens of pieces before the window, which are dropped then
TOLERANCE_SAMPLES = 8_000  # half a second, by which the time of a piece may be late
MIN_UPPER_WORDS = 3  # fewer words in capitals may be abbreviations
MAX_LOWER = 0.1  # share of small letters in a text in capitals: "McDONALD"
# Scripts without spaces between words, as `unicodedata` names their characters.
UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "IDEOGRAPHIC", "FULLWIDTH")
SENTENCE_START = re.compile(r"(?:^|(?<=[.!?]\s))\w")
SPACE = re.compile(r"\s")

Tokenize = Callable[[str], Sequence[int]]


class GivenHint(Hint):
    """A text from outside, and its position in the open window.

    Windows are decoded again, whole or in part: the hint goes back to where the next window begins.

    A hint must not cost more than it saves, whatever its text: it has a balance in forward passes. Accepted
    tokens add to it, verified ones cost their time, and it offers no more than it can pay; its first token it
    may always offer.
    """

    def __init__(self, word_of: Callable[[int], str]) -> None:
        super().__init__((), word_of, rate=GIVEN_RATE)
        self._window_rates = self.rates  # at its start
        self._balance, self._token_share = FIRST_BALANCE, 0.0
        self._is_tried = False
        self._committed: list[int] = []  # in the open window
        self._starts: list[int | None] = [0]  # position after each number of them
        self._num_right = 0  # words of the window that followed another one
        self._begins_elsewhere = False  # not where it was believed to begin, and not found yet

    def open_window(self, num_kept: int, start_sample: int = 0) -> None:
        """Turn to the next window.

        Parameters
        ----------
        num_kept : tokens of the last window whose audio is not decoded again.
        start_sample : where the window begins.
        """
        self._window_rates = self.rates
        self._begin(None if self._begins_elsewhere else self._starts[min(num_kept, len(self._starts) - 1)])

    def reach(self, token_share: float = 0.0) -> int:
        """Return how many tokens are worth their time; see :meth:`Hint.reach`."""
        self._token_share = token_share
        reach = super().reach(token_share)
        if not token_share:
            return reach
        return min(reach, max(floor(self._balance / token_share), int(not self._is_tried)))

    def pay(self, num_verified: int, num_accepted: int) -> None:
        """Add a forward pass that verified tokens of the hint."""
        self._is_tried = True
        cost = num_verified * self._token_share  # as it was known when they were offered
        self._balance = min(max(0.0, self._balance - cost) + num_accepted, MOST_BALANCE)

    def follow(self, token: int) -> None:
        self._balance = min(self._balance + INCOME, MOST_BALANCE)
        was_following, num_found = self.is_following, self._num_found
        super().follow(token)
        self._num_right += was_following and self.is_following and bool(self._word_of(token))
        self._committed.append(token)
        self._starts.append(self.position)
        if self._num_right < NUM_MATCHED and (self.position is None or self._num_found > num_found):
            self._begins_elsewhere = True
        if self._num_found > num_found:
            self._place()

    def _place(self) -> None:
        """Place the tokens before a place that was found: the next window may begin among them."""
        if self._begins_elsewhere:
            start = self._position - len(self._committed)
            self._starts = [max(0, start + index) for index in range(len(self._starts))]
            self._begins_elsewhere = False

    def _begin(self, start: int | None) -> None:
        self.seek(start)
        self._committed, self._starts = [], [self.position]
        self._num_right, self._begins_elsewhere = 0, self.position is None


class ScriptHint(GivenHint):
    """A text of the whole session, tokenized as the windows reach it.

    While it is lost, each committed token has one more chunk searched: an hour of speech takes fifty.
    """

    def __init__(self, text: str, tokenize: Tokenize, word_of: Callable[[int], str]) -> None:
        super().__init__(word_of)
        self._tokenize = tokenize
        self._chunks = _chunks(text)
        self._extend_to(MIN_AHEAD)

    def open_later(self, previous: Sequence[int]) -> None:
        """Turn to the first window of a session that continues another; ``previous`` shows the place."""
        self._begin(None)
        for token in previous:
            self.follow(token)
        self.open_window(len(previous))

    def follow(self, token: int) -> None:
        super().follow(token)
        if self.has_ended:
            self._extend_to(len(self) + 1)

    def _place(self) -> None:
        super()._place()
        self._extend_to(self._position + MIN_AHEAD)

    def _begin(self, start: int | None) -> None:
        super()._begin(start)
        if start is not None:
            self._extend_to(start + MIN_AHEAD)

    def _extend_to(self, num_tokens: int) -> None:
        while len(self) < min(num_tokens, MAX_TOKENS) and (chunk := next(self._chunks, None)) is not None:
            self.extend(self._tokenize(chunk))


class Piece(NamedTuple):
    """A part of the text.

    Attributes
    ----------
    start_sample : roughly where it is said.
    position : index of its first token.
    """

    start_sample: int
    position: int


class LiveHint(GivenHint):
    """Pieces of text with times; the position lies among those of the window's time."""

    def __init__(self, tokenize: Tokenize, word_of: Callable[[int], str]) -> None:
        super().__init__(word_of)
        self._tokenize = tokenize
        self._pieces = [Piece(0, 0)]
        self._window_start = 0  # sample

    def open_window(self, num_kept: int, start_sample: int = 0) -> None:
        self._window_start = start_sample
        super().open_window(num_kept, start_sample)
        self._drop_old()

    def replace(self, start_sample: int, text: str) -> None:
        """Replace all text that begins at a given time or later.

        A recogniser sends each version of an utterance so, with the time at which the utterance begins; the
        empty text takes it back.
        """
        index = bisect_left(self._pieces, start_sample, key=lambda piece: piece.start_sample)
        position = self._pieces[index].position if index < len(self._pieces) else len(self)
        tokens = self._tokenize(_plain(text))
        if position + len(tokens) > MAX_TOKENS:
            tokens = ()
        self._pieces[index:] = [Piece(start_sample, position)] if tokens else []
        if not self._pieces:
            self._pieces = [Piece(0, 0)]
        num_same = self.num_shared(position, tokens)
        is_settled = self.is_following and (self.position or 0) <= position + num_same
        self.truncate(position + num_same)
        self.extend(tokens[num_same:])
        if not is_settled:
            self._follow_again()

    def _begin(self, start: int | None) -> None:
        """Begin a window among the pieces that may be said there."""
        latest = self._window_start + TOLERANCE_SAMPLES
        index = max(1, bisect_right(self._pieces, latest, key=lambda piece: piece.start_sample))
        first, end = self._pieces[index - 1].position, len(self)
        if index < len(self._pieces):
            end = self._pieces[index].position
        super()._begin(first if start is None else min(max(first, start), end))

    def _follow_again(self) -> None:
        """Find the position of the window's committed tokens in a text that has changed."""
        committed, balance = self._committed, self._balance
        self.rates = self._window_rates
        self._begin(self._starts[0])
        for token in committed:
            self.follow(token)
        self._balance = balance  # they were counted when they were committed

    def _drop_old(self) -> None:
        """Drop the pieces before the window once they are many tokens."""
        index = bisect_right(self._pieces, self._window_start, key=lambda piece: piece.start_sample) - 1
        if index < 1 or (num_old := self._pieces[index].position) < MAX_OLD:
            return
        self.drop(num_old)
        self._pieces = [Piece(sample, position - num_old) for sample, position in self._pieces[index:]]
        self._starts = [self.position]


def _plain(text: str) -> str:
    """Return a text in small letters, without special tokens.

    It has the spaces that its script has between words.
    """
    text = _small(text)
    words = text.replace("<|", "< |").split()
    plain = words[:1]
    for before, word in pairwise(words):
        is_joined = is_unspaced(before[-1]) and is_unspaced(word[0])
        plain.append(word if is_joined else f" {word}")
    return "".join(plain)


def _small(text: str) -> str:
    """Return a text in capitals as Whisper writes: only sentences begin with one."""
    num_upper, num_lower = sum(map(str.isupper, text)), sum(map(str.islower, text))
    if (
        num_lower > MAX_LOWER * (num_upper + num_lower)
        or len(text.split(None, MIN_UPPER_WORDS)) < MIN_UPPER_WORDS
    ):
        return text
    return SENTENCE_START.sub(lambda start: start[0].upper(), text.lower())


def is_unspaced(character: str) -> bool:
    """Return whether a character's script has no spaces between words."""
    return unicodedata.name(character, "").startswith(UNSPACED_SCRIPTS)


def _chunks(text: str) -> Iterator[str]:
    """Split a text between words, into pieces that can be tokenized."""
    start = 0
    while start < len(text):
        most = start + 2 * CHUNK_CHARACTERS
        space = SPACE.search(text, start + CHUNK_CHARACTERS, most)
        if space is not None:
            end = space.start()
        else:  # the last piece, or a language without spaces
            end = len(text) if len(text) <= most else start + CHUNK_CHARACTERS
        if plain := _plain(text[start:end]):
            yield plain
        start = end
