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
from typing import NamedTuple, Protocol

from specwhisper.speculation.run_index import MAX_COMPARED, NUM_SEARCHED, RunIndex
from specwhisper.speculation.theory import num_worthwhile

MIN_RATE = 0.1  # below it none is worth it, until words match again
FIRST_RATE = 0.75
LATELY, FOR_LONGER = 0.25, 0.07  # weight of the last word in the rates
MAX_DELETED = 12  # tokens of the hint that the committed text may leave out
MAX_REALIGNING = 16  # committed tokens after a difference; then the hint is lost
MAX_WAITING = 64  # committed tokens after the hint's end; then it is lost
NUM_MATCHED = 2  # words in a row that end a realignment
MATCH = -1.0  # cost of a word that both texts have; 1 is that of a word that only one has
SAME_WORD = 0.1  # more for another case of a word, of other punctuation, or of another time
MAX_LIGHT = 4  # punctuation and times in a row that the committed text may leave out
LIGHT = 0.2  # cost of punctuation or a time that only one text has


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
        """Return the id."""
        return str(token)

    def fit(self, committed: Sequence[int], tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens as they are."""
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
        self._costs: list[float] | None = None  # while realigning: of an end at ``_origin`` + index
        self._origin = 0
        self._num_realigning = self._num_matched = 0
        self._is_lost = False
        self._num_found = 0  # how often a lost place was found
        self._unaligned: list[tuple[int, str]] = []  # tokens since the difference, while a word was replaced
        self._since: list[tuple[int, str]] = []  # tokens since the difference
        self._needs_more = False  # the alignment of these reached the hint's end
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
        return self._costs is None and not self._is_lost and not self._waiting

    @property
    def has_ended(self) -> bool:
        """Whether it is lost, or the committed text has passed its end."""
        return self._is_lost or (self._position if self._costs is None else self._origin) >= len(self._tokens)

    def num_shared(self, position: int, tokens: Sequence[int]) -> int:
        """Count the first tokens that the hint has at a position as well."""
        end = min(len(tokens), len(self) - position)
        return next((i for i in range(end) if self._tokens[position + i] != tokens[i]), end)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the hint."""
        start = len(self._tokens)
        for token in tokens:
            self._tokens.append(token)
            self._words.append(self._word_of(token))
        if self._waiting:
            self._follow_waiting()
        elif self._costs is not None and self._needs_more:
            since = {word for _, word in self._since if word}
            if not since.isdisjoint(self._words[start:]):  # else nothing new matches
                self._realign_again()

    def truncate(self, num_tokens: int) -> None:
        """Drop all tokens but the first ones.

        If the position is not among them, :meth:`seek` one that is.
        """
        del self._tokens[num_tokens:], self._words[num_tokens:]
        if self._costs is not None:
            self._origin = min(self._origin, len(self._tokens))
            self._realign_again()
        if self._index is not None:
            self._index.truncate(self._words)

    def drop(self, num_tokens: int) -> None:
        """Drop the first tokens, all of which lie before the position."""
        del self._tokens[:num_tokens], self._words[:num_tokens]
        self._position = max(0, self._position - num_tokens)
        self._index = None

    @property
    def rates(self) -> Rates:
        """How often its tokens were right."""
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
        self._costs = None
        self._waiting.clear()
        self._is_lost = position is None
        self._position = self._position if position is None else min(position, len(self._tokens))
        self._recent = []

    def follow(self, token: int) -> None:
        """Take the next committed token."""
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
            self._begin_to_realign()
        if word:
            self._recent = [*self._recent[1 - MAX_COMPARED :], word]
        if self._is_lost:
            self._search(word)
        else:
            self._realign(token, word)

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

    def _begin_to_realign(self) -> None:
        self._recent = []
        self._restart_alignment(self._position)

    def _restart_alignment(self, origin: int) -> None:
        self._origin = self._position = origin
        self._num_realigning = self._num_matched = 0
        self._unaligned, self._since, self._needs_more = [], [], False
        self._costs = [0.0]

    def _realign_again(self) -> None:
        """Align the tokens since the difference with a hint that is longer than it was."""
        since = self._since
        self._restart_alignment(self._origin)
        for token, word in since:
            if self._costs is None:
                self._follow(token)
            else:
                self._realign(token, word)

    def _realign(self, token: int, word: str) -> None:
        """Follow a token after a difference.

        Mostly a word has replaced another one, and the text continues after it. Only if it does not, all
        tokens since the difference are aligned.
        """
        num = len(self._unaligned)
        place = self._origin + num
        self._since.append((token, word))
        if num == self._num_realigning and self._replaces(place, token, word):
            self._unaligned.append((token, word))
            self._num_realigning += 1
            self._num_matched = num  # all but the first
            self._position = place + 1
            if num >= NUM_MATCHED:
                self._costs = None
            return
        unaligned, self._unaligned = [*self._unaligned, (token, word)], []
        if num:
            self._num_realigning = self._num_matched = 0
            self._position = self._origin
        for each in unaligned:
            if self._costs is None:  # the hint has grown, and matches by now
                self._follow(each[0])
            else:
                self._align(*each)

    def _replaces(self, place: int, token: int, word: str) -> bool:
        """Return whether this token agrees with one replaced word.

        The word at the difference was replaced, and the hint's tokens after it were committed.
        """
        if not word or place >= len(self._tokens) or not self._words[place]:
            return False
        if place == self._origin:
            return word not in self._words[place : place + MAX_DELETED + 1]
        return self._tokens[place] == token

    def _align(self, token: int, word: str) -> None:
        """Extend the alignment of the committed tokens since the difference by one."""
        old, tokens, words = self._costs or [0.0], self._tokens, self._words
        num_left, num_needed = len(tokens) - self._origin, MAX_DELETED + self._num_realigning + 1
        last, self._needs_more = min(num_needed, num_left), num_left < num_needed
        for position in range(self._origin + len(old) - 1, self._origin + last):
            old.append(old[-1] + (1.0 if words[position] else LIGHT))
        added = 1.0 if word else LIGHT
        new = [old[0] + added]
        best, best_cost, matched = 0, new[0], False
        for index, position in enumerate(range(self._origin, self._origin + len(old) - 1), start=1):
            theirs = words[position]
            is_match = theirs == word != ""
            if is_match:
                replaced = MATCH if tokens[position] == token else MATCH + SAME_WORD
            elif theirs and word:
                replaced = 1.0
            else:
                replaced = SAME_WORD if theirs == word else 1.0 + LIGHT
            replaced += old[index - 1]
            cost = min(replaced, new[-1] + (1.0 if theirs else LIGHT), old[index] + added)
            new.append(cost)
            # Of equal costs, an end at a match wins; then a substitution, which most errors are.
            if cost < best_cost or (cost == best_cost == replaced and not matched):
                best, best_cost, matched = index, cost, is_match and cost == replaced
        self._costs = new
        self._num_realigning += 1
        follows_on = self._origin + best == self._position + 1
        self._position = self._origin + best
        if matched:
            self._num_matched = (self._num_matched if follows_on else 0) + 1
        elif word:
            self._num_matched = 0
        if self._num_matched >= NUM_MATCHED:
            self._costs = None
        elif self._num_realigning >= MAX_REALIGNING:
            self._costs = None
            self._is_lost = True
            self._search(word)

    def _search(self, word: str) -> None:
        """Find the last committed words in the hint."""
        if not word or len(self._recent) < NUM_SEARCHED:
            return
        if self._index is None:
            self._index = RunIndex()
        place = self._index.find(self._recent, self._words, self._position)
        if place is not None:
            self._position = place
            self._is_lost = False
            self._num_found += 1
