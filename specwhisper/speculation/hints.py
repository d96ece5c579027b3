"""Follow a hint: a text that the audio probably contains.

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
from itertools import pairwise
from math import floor
from typing import NamedTuple

NUM_SEARCHED = 3  # words in a row that find a lost place
MAX_COMPARED = 8  # words, where several places have these
MAX_PLACES = 64  # that are compared, the nearest


class RunIndex:
    """Where each run of :data:`NUM_SEARCHED` words of a hint ends.

    Words are indexed when they are first needed. Empty ones are skipped.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], list[int]] = {}  # positions after a run
        self._runs: list[tuple[tuple[str, ...], int]] = []  # the same, in order
        self._num_indexed = 0
        self._last: deque[str] = deque(maxlen=NUM_SEARCHED)  # words before those that are not indexed

    def find(self, recent: Sequence[str], words: Sequence[str], position: int) -> int | None:
        """Return the place after the last :data:`NUM_SEARCHED` of the recent words.

        Of several places, that which has most of the words before them too; then the nearest to a position.
        ``None`` if the words lack the run.
        """
        self._extend(words)
        places = self._places.get(tuple(recent[-NUM_SEARCHED:]), ())
        if len(places) < 2:
            return places[0] if places else None
        middle = bisect_left(places, position)
        near = places[max(0, middle - MAX_PLACES // 2) : middle + MAX_PLACES // 2]
        return min(
            near, key=lambda place: (-_num_shared(recent, words, place), abs(place - position), -place)
        )

    def truncate(self, words: Sequence[str]) -> None:
        """Forget all but these first words."""
        if self._num_indexed <= len(words):
            return
        while self._runs and self._runs[-1][1] > len(words):
            run, _ = self._runs.pop()
            self._places[run].pop()
            if not self._places[run]:
                del self._places[run]
        last = self._runs[-1][0] if self._runs else [word for word in words if word]
        self._last = deque(last, maxlen=NUM_SEARCHED)
        self._num_indexed = len(words)

    def _extend(self, words: Sequence[str]) -> None:
        for position in range(self._num_indexed, len(words)):
            if not (word := words[position]):
                continue
            self._last.append(word)
            if len(self._last) == NUM_SEARCHED:
                run = tuple(self._last)
                self._places.setdefault(run, []).append(position + 1)
                self._runs.append((run, position + 1))
        self._num_indexed = len(words)


def _num_shared(recent: Sequence[str], words: Sequence[str], place: int) -> int:
    """Count the last words that are the same before a place, without empty ones."""
    num = 0
    while place and num < len(recent):
        place -= 1
        if not words[place]:
            continue
        if words[place] != recent[-1 - num]:
            break
        num += 1
    return num


MAX_DELETED = 12  # tokens of the hint that the committed text may leave out
NUM_MATCHED = 2  # words in a row that end a realignment
MATCH = -1.0  # cost of a word that both texts have; 1 is that of a word that only one has
SAME_WORD = 0.1  # more for another case of a word, of other punctuation, or of another time
LIGHT = 0.2  # cost of punctuation or a time that only one text has


class Alignment:
    """The cheapest alignment of the committed tokens since a difference with a hint.

    Mostly a word has replaced another one, and the text continues after it. Then nothing is aligned. Tokens
    that nothing left of the hint can match are not aligned either, until one is.

    Parameters
    ----------
    tokens, words : the hint's, which may grow.
    origin : index in the hint of the first token after the common text.

    Attributes
    ----------
    position : index of the hint's token that should come next.
    since : tokens since the difference, with their words.
    """

    def __init__(self, tokens: Sequence[int], words: Sequence[str], origin: int) -> None:
        self.origin = self.position = origin
        self.since: list[tuple[int, str]] = []
        self.has_matched = False
        self._tokens, self._words = tokens, words
        self._costs = [0.0]  # cheapest alignments that end at ``origin`` + index
        self._num_aligned = self._num_matched = 0
        self._waiting: list[tuple[int, str]] = []  # the last of these, which are not aligned
        self._is_replacement = True  # nothing but one replaced word so far
        self._needs_more = False  # it has reached the hint's end

    def is_changed_by(self, words: Sequence[str]) -> bool:
        """Return whether it may differ with these words after the hint's end."""
        return self._needs_more and not {word for _, word in self.since if word}.isdisjoint(words)

    def add(self, token: int, word: str) -> list[int]:
        """Take the next committed token; after a match return the last tokens, not aligned yet."""
        num = len(self.since)
        self.since.append((token, word))
        self._waiting.append((token, word))
        if self._is_replacement and self._replaces(self.origin + num, token, word):
            self.position = self.origin + num + 1
            self.has_matched = num >= NUM_MATCHED  # all but the first
            return []
        may_match = bool(word) and word in self._words[self.origin :]
        if self.position >= len(self._tokens) and not may_match:
            self._is_replacement, self._needs_more = False, True
            return []
        self._is_replacement = False
        if not self._num_aligned:
            self.position = self.origin
        while self._waiting and not self.has_matched:
            self._align(*self._waiting.pop(0))
        return [token for token, _ in self._waiting]

    def _replaces(self, place: int, token: int, word: str) -> bool:
        """Return whether this token agrees with one replaced word.

        The word at the difference was replaced, and the hint's tokens after it were committed.
        """
        if not word or place >= len(self._tokens) or not self._words[place]:
            return False
        if place == self.origin:
            return word not in self._words[place : place + MAX_DELETED + 1]
        return self._tokens[place] == token

    def _align(self, token: int, word: str) -> None:
        old, tokens, words, origin = self._costs, self._tokens, self._words, self.origin
        num_left, num_needed = len(tokens) - origin, MAX_DELETED + self._num_aligned + 1
        last, self._needs_more = min(num_needed, num_left), num_left < num_needed
        for position in range(origin + len(old) - 1, origin + last):
            old.append(old[-1] + (1.0 if words[position] else LIGHT))
        added = 1.0 if word else LIGHT
        new = [old[0] + added]
        best, best_cost, matched = 0, new[0], False
        for index, position in enumerate(range(origin, origin + len(old) - 1), start=1):
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
            # At equal costs, an end at a match wins; then a substitution, which most errors are.
            if cost < best_cost or (cost == best_cost == replaced and not matched):
                best, best_cost, matched = index, cost, is_match and cost == replaced
        self._costs = new
        self._num_aligned += 1
        follows_on = origin + best == self.position + 1
        self.position = origin + best
        if matched:
            self._num_matched = (self._num_matched if follows_on else 0) + 1
        elif word:
            self._num_matched = 0
        self.has_matched = self._num_matched >= NUM_MATCHED


MAX_REACH = 64  # tokens of a hint in a forward pass
MIN_CHANCE = 0.1  # that the last of them is right
MIN_RATE = 0.1  # below it none is worth it, until words match again
FIRST_RATE = 0.75
LATELY, FOR_LONGER = 0.25, 0.07  # weight of the last word in the rates
MAX_REALIGNING = 16  # committed tokens after a difference; then the hint is lost
MAX_WAITING = 64  # committed tokens after the hint's end; then it is lost
MAX_LIGHT = 4  # punctuation and times in a row that the committed text may leave out


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
    word_of : returns a token's word without case, spaces and punctuation; empty for times.
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
        self._index: RunIndex | None = None  # its words, once it is lost
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
        """Drop all tokens but the first ones; :meth:`seek` a position among them afterwards."""
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

        ``token_share``: time of a token, over the time of a forward pass without tokens.
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
