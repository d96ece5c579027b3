"""Follow a hint: a text that the audio is believed to say.

A hint is never trusted: the target verifies its tokens as candidates. So it saves forward passes and round
trips, and cannot change the text. After each committed token, :class:`Hint` finds where the hint continues.
It is in one of four states:

=============  =============================================  ==============================================
State          Entered                                        Position
=============  =============================================  ==============================================
following      at the start, and when words match again       known; the next token is expected there
waiting        at a committed token after the hint's end      its end; the hint may still be extended
realigning     at a committed token that differs              the end of the cheapest alignment of the
                                                              committed tokens since then
lost           if no two words in a row match in time         unknown, until three words of the committed
                                                              text occur in the hint
=============  =============================================  ==============================================

Tokens are compared by their words. Case and punctuation count little, and so do timestamps, which differ
between any two decodings. A word in other tokens is a substitution and an insertion, which alignment allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from specwhisper.speculation.hints.alignment import Alignment
from specwhisper.speculation.hints.run_index import MAX_COMPARED, NUM_SEARCHED, RunIndex

MAX_REACH = 64  # tokens of a hint in a forward pass
MIN_CHANCE = 0.1  # that the last of them is right
MIN_RATE = 0.1  # below it none is worth it, until words match again
FIRST_RATE = 0.75
LATELY, FOR_LONGER = 0.25, 0.07  # weight of the last word in the rates
MAX_REALIGNING = 16  # committed tokens after a difference; then the hint is lost
MAX_WAITING = 64  # committed tokens after the hint's end; then it is lost
MAX_LIGHT = 4  # punctuation and times in a row that the committed text may leave out


class HintTokens(Protocol):
    """How the tokens of a hint are compared, and where they may stand."""

    def word_of(self, token: int) -> str:
        """Return the word, or part of one, that a token stands for.

        It has no case, spaces or punctuation; it is empty for punctuation and timestamps.
        """

    def fit(self, committed: Sequence[int], tokens: Sequence[int]) -> Sequence[int]:
        """Return a hint's continuation with the timestamps that must be there."""


class PlainTokens:
    """Tokens that each are a word."""

    def word_of(self, token: int) -> str:
        return str(token)

    def fit(self, committed: Sequence[int], tokens: Sequence[int]) -> Sequence[int]:
        return tokens


PLAIN = PlainTokens()


class Rates(NamedTuple):
    """How often the tokens of a hint were right.

    Attributes
    ----------
    lately, for_longer : the share that was, weighted by age.
    survival : the share of those after a token that was.
    num_missed : words in a row that were not expected.
    """

    lately: float
    for_longer: float
    survival: float
    num_missed: int = 0


class Hint:
    """A hint and the position at which it continues the committed text.

    A committed token takes constant time. A lost hint is indexed: each token once, and once more where old
    tokens are dropped.

    Parameters
    ----------
    tokens : the hint.
    word_of : see :meth:`HintTokens.word_of`.
    rate : how often its tokens are expected to be right, before any was committed.
    survival : how often each is expected to be right after one that was; by default the same.
    """

    def __init__(
        self,
        tokens: Iterable[int],
        word_of: Callable[[int], str],
        *,
        rate: float = FIRST_RATE,
        survival: float | None = None,
    ) -> None:
        self._lately = self._for_longer = rate
        self._survival = rate if survival is None else survival
        self._num_missed = 0  # words in a row that were not expected
        self._tokens: list[int] = []
        self._words: list[str] = []
        self._word_of = word_of
        self._position = 0
        self._alignment: Alignment | None = None  # while realigning
        self._is_lost = False
        self._num_found = 0  # how often a lost place was found
        self._waiting: deque[int] = deque()  # committed tokens after the hint's end, while it waits
        self._recent: list[str] = []  # the last committed words
        self._index: RunIndex | None = None  # of its words, once it is lost
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def position(self) -> int | None:
        """Index of the token that should come next; ``None`` while the hint is lost."""
        return None if self._is_lost else self._position

    @property
    def is_following(self) -> bool:
        """Whether the position is known, and not waiting at the end."""
        return self._alignment is None and not self._is_lost and not self._waiting

    @property
    def has_ended(self) -> bool:
        """Whether it is lost, or the committed text has passed its end."""
        position = self._position if self._alignment is None else self._alignment.origin
        return self._is_lost or position >= len(self._tokens)

    def num_shared(self, position: int, tokens: Sequence[int]) -> int:
        """Count the first tokens that the hint has at a position as well."""
        end = min(len(tokens), len(self) - position)
        return next((i for i in range(end) if self._tokens[position + i] != tokens[i]), end)

    def extend(self, tokens: Iterable[int]) -> None:
        start = len(self._tokens)
        for token in tokens:
            self._tokens.append(token)
            self._words.append(self._word_of(token))
        if self._waiting:
            self._follow_waiting()
        elif self._alignment is not None and self._alignment.is_changed_by(self._words[start:]):
            self._realign_again(self._alignment)

    def truncate(self, num_tokens: int) -> None:
        """Drop all tokens but the first ones.

        If the position is not among them, :meth:`seek` one that is.
        """
        del self._tokens[num_tokens:], self._words[num_tokens:]
        if self._alignment is not None:
            self._realign_again(self._alignment)
        if self._index is not None:
            self._index.truncate(self._words)

    def drop(self, num_tokens: int) -> None:
        """Drop the first tokens, all of which lie before the position."""
        del self._tokens[:num_tokens], self._words[:num_tokens]
        self._position = max(0, self._position - num_tokens)
        self._index = None

    @property
    def rates(self) -> Rates:
        return Rates(self._lately, self._for_longer, self._survival, self._num_missed)

    @rates.setter
    def rates(self, rates: Rates) -> None:
        self._lately, self._for_longer, self._survival, self._num_missed = rates

    @property
    def rate(self) -> float:
        """How often the token that it expected was committed, lately or for longer.

        A single error means little for the words after it; several in a row mean another text.
        """
        return self._lately if self._num_missed > 1 else max(self._lately, self._for_longer)

    def _observe(self, is_right: bool) -> None:
        self._num_missed = 0 if is_right else self._num_missed + 1
        self._lately += (is_right - self._lately) * LATELY
        self._for_longer += (is_right - self._for_longer) * FOR_LONGER

    def reach(self, token_share: float = 0.0) -> int:
        """Return how many tokens are worth their time in a forward pass.

        Parameters
        ----------
        token_share : time of a token, over the time of a forward pass without tokens.
        """
        if self.rate < MIN_RATE:
            return 0
        later = self._survival if self._num_missed <= 1 else min(self.rate, self._survival)
        return num_worthwhile(round(self.rate, 2), round(later, 2), round(token_share, 2))

    def continuation(self, max_tokens: int | None = None) -> Sequence[int]:
        """Return the tokens that continue the committed text."""
        if self._is_lost:
            return ()
        start = self._position
        return self._tokens[start : None if max_tokens is None else start + max_tokens]

    def seek(self, position: int | None) -> None:
        """Continue at a position, or search for it if it is ``None``."""
        self._alignment = None
        self._waiting.clear()
        self._is_lost = position is None
        self._position = self._position if position is None else min(position, len(self._tokens))
        self._recent = []

    def follow(self, token: int) -> None:
        self._follow(token)

    def _follow(self, token: int) -> None:
        position = self._position
        is_following = self.is_following
        if self._waiting or (is_following and position >= len(self._tokens)):
            self._wait(token)
            return
        if is_following:
            is_expected = self._tokens[position] == token
            self._survival += (is_expected - self._survival) * FOR_LONGER
            if is_expected:  # nearly always
                self._position += 1
                self._observe(True)
                return
        word = self._word_of(token)
        if not self._is_lost and position < len(self._tokens):
            if word or not self._words[position]:  # a text without times says nothing about them
                self._observe(self._tokens[position] == token)
        if is_following:
            following = self._after(word)
            if following is not None:
                self._position = following
                return
            self._recent = []
            self._alignment = Alignment(self._tokens, self._words, position)
        if word:
            self._recent = [*self._recent[1 - MAX_COMPARED :], word]
        if self._alignment is not None:
            self._realign(self._alignment, token, word)
        else:
            self._search(word)

    def _wait(self, token: int) -> None:
        """Keep a token that the hint may have once it is extended."""
        self._waiting.append(token)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.clear()
            self._is_lost, self._recent = True, []

    def _follow_waiting(self) -> None:
        """Follow the tokens that the hint has by now, or all that are left after a difference."""
        waiting, self._waiting = self._waiting, deque()
        while waiting and not (self.is_following and self._position >= len(self._tokens)):
            self._follow(waiting.popleft())
        self._waiting += waiting

    def _after(self, word: str) -> int | None:
        """Return the position after the expected word; ``None`` after another word."""
        position = self._position
        if not word:  # only one text may have it
            is_light = position < len(self._tokens) and not self._words[position]
            return position + 1 if is_light else position
        for index in range(position, min(position + MAX_LIGHT + 1, len(self._tokens))):
            if self._words[index]:
                return index + 1 if self._words[index] == word else None
        return None

    def _realign(self, alignment: Alignment, token: int, word: str) -> None:
        after = alignment.add(token, word)
        self._position = alignment.position
        if alignment.has_matched:
            self._alignment = None
        elif len(alignment.since) >= MAX_REALIGNING:
            self._alignment, self._is_lost = None, True
            self._search(word)
        for each in after:  # the hint has grown, and matches by now
            self._follow(each)

    def _realign_again(self, alignment: Alignment) -> None:
        """Align the tokens since the difference with a hint that has changed."""
        self._position = min(alignment.origin, len(self._tokens))
        self._alignment = Alignment(self._tokens, self._words, self._position)
        for token, word in alignment.since:
            if self._alignment is None:
                self._follow(token)
            else:
                self._realign(self._alignment, token, word)

    def _search(self, word: str) -> None:
        if not word or len(self._recent) < NUM_SEARCHED:
            return
        if self._index is None:
            self._index = RunIndex()
        place = self._index.find(self._recent, self._words, self._position)
        if place is not None:
            self._position = place
            self._is_lost = False
            self._num_found += 1


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
