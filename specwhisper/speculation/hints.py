"""Follow a hint: a text that the audio probably contains.

A hint is never trusted: the target verifies its tokens as candidates. So it saves forward passes and round
trips, and cannot change the text. After each committed token, :class:`Hint` finds where the hint continues.
It is in one of three states:

=============  =============================================  ==============================================
State          Entered                                        Position
=============  =============================================  ==============================================
following      at the start, and when words match again       known; the next token is expected there
realigning     at a committed word that differs, or comes     the likeliest nearby
               after the hint's end
lost           if no two words in a row match in time         unknown, until three words of the committed
                                                              text occur in the hint
=============  =============================================  ==============================================

Tokens are compared by their words. Case and punctuation count little, and so do timestamps, which differ
between any two decodings.

Hints from outside run through all windows of a session:

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, takewhile
from math import floor
from typing import NamedTuple

NUM_SEARCHED = 3  # words in a row that find a lost place
MAX_COMPARED = 8  # words, where several places have these
BETWEEN = "\uffff"  # between two words; a part of a character is a word, and may be a space
MAX_SKIPPED = 12  # tokens of the hint that the committed text may leave out
NUM_MATCHED = 2  # words in a row that end a realignment
MAX_REALIGNING = 16  # committed words after a difference, or the hint's end; then it is lost

MAX_REACH = 64  # tokens of a hint in a forward pass
MIN_CHANCE = 0.1  # that the last of them is right
MIN_RATE = 0.1  # below it none is worth it, until words match again
FIRST_RATE = 0.75
LATEST = 0.1  # weight of the latest word in how often the hint is right


class Hint:
    """A hint and the position at which it continues the committed text.

    A committed token takes constant time, unless the hint is lost.

    Parameters
    ----------
    word_of : returns a token's word without case, spaces and punctuation; empty for times.
    rate : how often its tokens are expected to be right, before any was committed.
    survival : how often each is expected to be right after one that was; by default the same.

    Attributes
    ----------
    rate : how often the token that it expected was committed; later ones count more.
    """

    def __init__(
        self,
        tokens: Iterable[int],
        word_of: Callable[[int], str],
        *,
        rate: float = FIRST_RATE,
        survival: float | None = None,
    ) -> None:
        self.rate = rate
        self._survival = rate if survival is None else survival
        self._tokens: list[int] = []
        self._words: list[str] = []
        self._word_of = word_of
        self._position = 0  # beyond the end after more committed tokens than the hint has
        self._difference: int | None = None  # while realigning: the first token after the common text
        self._num_since = 0  # committed words since then
        self._is_lost = False
        self._recent: deque[str] = deque(maxlen=MAX_COMPARED)  # the last committed words
        self._index: WordIndex | None = None  # built once the hint is lost
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def position(self) -> int | None:
        """Index of the token that should come next; ``None`` while the hint is lost."""
        return None if self._is_lost else min(self._position, len(self._tokens))

    @property
    def is_following(self) -> bool:
        """Whether the position is known, and not after the end."""
        return self._difference is None and not self._is_lost

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._tokens.append(token)
            self._words.append(self._word_of(token))
        if self._difference is not None:
            self._realign(self._difference, self._position)

    def truncate(self, num_tokens: int) -> None:
        """Drop all tokens but the first ones."""
        del self._tokens[num_tokens:], self._words[num_tokens:]
        if self._index is not None:
            self._index.truncate(num_tokens)
        start = self._position if self._difference is None else self._difference
        if start > num_tokens:
            self._difference, self._num_since = num_tokens, self._num_since + start - num_tokens

    def drop(self, num_tokens: int) -> None:
        """Drop the first tokens, all of which lie before the position."""
        del self._tokens[:num_tokens], self._words[:num_tokens]
        self._index = None
        self._position = max(0, self._position - num_tokens)
        if self._difference is not None:
            self._difference = max(0, self._difference - num_tokens)

    def reach(self, token_share: float = 0.0) -> int:
        """Return how many tokens are worth their time in a forward pass.

        ``token_share``: time of a token, over the time of a forward pass without tokens.
        """
        if self.rate < MIN_RATE:
            return 0
        return num_worthwhile(round(self.rate, 2), round(self._survival, 2), round(token_share, 2))

    def continuation(self, max_tokens: int | None = None) -> Sequence[int]:
        """Return the tokens that continue the committed text."""
        if self._is_lost:
            return ()
        start = self._position
        return self._tokens[start : None if max_tokens is None else start + max_tokens]

    def seek(self, position: int | None) -> None:
        """Continue at a position, or search for it if it is ``None``."""
        self._difference, self._is_lost = None, position is None
        self._position = self._position if position is None else min(position, len(self._tokens))
        self._recent.clear()

    def follow(self, token: int) -> None:
        """Find the position after one more committed token."""
        position, is_following = self._position, self.is_following
        has_next = not self._is_lost and position < len(self._tokens)
        is_expected = has_next and self._tokens[position] == token
        word = self._words[position] if is_expected else self._word_of(token)
        if has_next and is_following:
            self._survival += (is_expected - self._survival) * LATEST
        if has_next and (word or not self._words[position]):  # a text without times says nothing about them
            self.rate += (is_expected - self.rate) * LATEST
        if word:
            self._recent.append(word)
        if is_expected and is_following:  # nearly always
            self._position += 1
        elif not word:  # only one text may have it
            self._position += not has_next or not self._words[position]
        elif self._is_lost:
            self._search()
        else:
            if is_following:
                self._difference, self._num_since = position, 0
            self._num_since += 1
            self._realign(position if self._difference is None else self._difference, position + 1)

    def _realign(self, difference: int, replaced: int) -> None:
        """Find the likeliest position after a difference, among the places that follow the last words.

        Each word in common counts as much as two tokens that the committed text would leave out.

        Parameters
        ----------
        difference : the first token after the common text.
        replaced : the position if words were only replaced since then.
        """
        last = min(difference + MAX_SKIPPED + self._num_since, len(self._words))
        best, best_score, num_best = replaced, 0, 0
        for place in range(difference + 1, last + 1):
            if num := self._num_common(difference, place):
                score = 2 * num - max(0, place - replaced)
                if (score, num) > (best_score, num_best):
                    best, best_score, num_best = place, score, num
        self._position = best
        if num_best >= NUM_MATCHED:
            self._difference = None
        elif self._num_since >= MAX_REALIGNING:
            self._difference, self._is_lost = None, True
            self._search()

    def _num_common(self, difference: int, place: int) -> int:
        """Count the last words since the difference that are also the last before a place."""
        num, num_most = 0, min(self._num_since, len(self._recent))
        while place > difference and num < num_most:
            place -= 1
            if self._words[place] == self._recent[-1 - num]:
                num += 1
            elif self._words[place] or not num:
                break
        return num

    def _search(self) -> None:
        """Find a lost place by the last committed words."""
        if self._index is None:
            self._index = WordIndex()
        place = self._index.find(self._words, list(self._recent), self._position)
        if place is not None:
            self._position, self._is_lost = place, False


def num_shared(ours: Iterable[int], theirs: Iterable[int]) -> int:
    """Count the first tokens that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


class WordIndex:
    """The words of a hint as one text, in which a run of them is found fast. Empty ones are skipped."""

    def __init__(self) -> None:
        self._num_words = 0
        self._text = BETWEEN
        self._starts = [0]  # where each word begins in the text, with the separator before it
        self._places: list[int] = []  # after each word in the hint

    def find(self, words: Sequence[str], recent: Sequence[str], position: int) -> int | None:
        """Return the place after most of the last words; of several, the nearest to a position.

        ``None`` if the words lack the last :data:`NUM_SEARCHED`.
        """
        self._extend(words)
        near = self._starts[bisect_right(self._places, position)]
        place = None
        for num in range(NUM_SEARCHED, len(recent) + 1):
            run = BETWEEN + BETWEEN.join(recent[-num:]) + BETWEEN
            starts = {self._text.find(run, near), self._text.rfind(run, 0, near + len(run))} - {-1}
            if not starts:
                break
            found = (self._places[bisect_left(self._starts, start) + num - 1] for start in starts)
            place = min(found, key=lambda each: (abs(each - position), -each))
        return place

    def truncate(self, num_words: int) -> None:
        """Forget all but the first words."""
        num_kept = bisect_right(self._places, num_words)
        self._num_words = min(self._num_words, num_words)
        self._text = self._text[: self._starts[num_kept] + 1]
        del self._places[num_kept:], self._starts[num_kept + 1 :]

    def _extend(self, words: Sequence[str]) -> None:
        """Add the words that have come since."""
        new = enumerate(words[self._num_words :], start=self._num_words + 1)
        known = [(word, place) for place, word in new if word]
        self._num_words = len(words)
        self._text += "".join(word + BETWEEN for word, _ in known)
        self._places += [place for _, place in known]
        self._starts += accumulate((len(word) + 1 for word, _ in known), initial=self._starts.pop())


@lru_cache(maxsize=4096)
def num_worthwhile(first: float, later: float, token_share: float) -> int:
    """Return how many candidates make the time of a token shortest.

    Parameters
    ----------
    first, later : how often the first one is right, and how often each later one is if those before it are.
    token_share : time of a token, over the time of a forward pass without tokens.
    """
    chance, num_expected = first, 1.0
    for num in range(MAX_REACH):
        time_so_far = 1 + token_share * (1 + num)  # one token is the session's own
        if chance < MIN_CHANCE or chance * time_so_far < token_share * num_expected:
            return num
        num_expected += chance
        chance *= later
    return MAX_REACH


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

    def __init__(self, word_of: Callable[[int], str], *, rate: float = GIVEN_RATE) -> None:
        super().__init__((), word_of, rate=rate)
        self._balance, self._token_share = FIRST_BALANCE, 0.0
        self._is_tried = False
        self._starts: list[int | None] = [0]  # position after each number of the window's tokens

    def open_window(self, num_kept: int, start_sample: int = 0) -> None:
        """Turn to the next window.

        Parameters
        ----------
        num_kept : tokens of the last window whose audio is not decoded again.
        start_sample : where the window begins.
        """
        self._begin(self._starts[min(num_kept, len(self._starts) - 1)])

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
        super().follow(token)
        self._starts.append(self.position)

    def _search(self) -> None:
        super()._search()
        if not self._is_lost:  # so the window does not begin where it was believed to
            self._starts = [None] * len(self._starts)

    def _begin(self, start: int | None) -> None:
        self.seek(start)
        self._starts = [self.position]


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
        self._extend_to(len(self) + 1 if self._is_lost else self._position + MIN_AHEAD)

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
        num_same = num_shared(self._tokens[position : position + len(tokens)], tokens)  # hints are long
        self.truncate(position + num_same)
        self.extend(tokens[num_same:])

    def _begin(self, start: int | None) -> None:
        """Begin a window among the pieces that may be said there."""
        latest = self._window_start + TOLERANCE_SAMPLES
        index = max(1, bisect_right(self._pieces, latest, key=lambda piece: piece.start_sample))
        first, end = self._pieces[index - 1].position, len(self)
        if index < len(self._pieces):
            end = self._pieces[index].position
        super()._begin(first if start is None else min(max(first, start), end))

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
