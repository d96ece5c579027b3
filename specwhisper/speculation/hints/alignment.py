"""Align committed tokens with a hint, from the first token on that differs."""

from __future__ import annotations

from collections.abc import Sequence

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
    tokens, words : of the hint, which may grow.
    origin : index in the hint of the first token after the common text.

    Attributes
    ----------
    position : index of the hint's token that should come next.
    since : tokens since the difference, with their words.
    has_matched : whether words match again.
    """

    def __init__(self, tokens: Sequence[int], words: Sequence[str], origin: int) -> None:
        self.origin = self.position = origin
        self.since: list[tuple[int, str]] = []
        self.has_matched = False
        self._tokens, self._words = tokens, words
        self._costs = [0.0]  # of the aligned tokens, of an end at ``origin`` + index
        self._num_aligned = self._num_matched = 0
        self._waiting: list[tuple[int, str]] = []  # the last of these, which are not aligned
        self._is_replacement = True  # nothing but one replaced word so far
        self._needs_more = False  # it has reached the hint's end

    def is_changed_by(self, words: Sequence[str]) -> bool:
        """Return whether it may differ with these words after the hint's end."""
        return self._needs_more and not {word for _, word in self.since if word}.isdisjoint(words)

    def add(self, token: int, word: str) -> list[int]:
        """Take the next committed token.

        Returns the tokens after the match, if words match again: the last ones, which were not aligned.
        """
        num = len(self.since)
        self.since.append((token, word))
        self._waiting.append((token, word))
        if self._is_replacement and self._replaces(self.origin + num, token, word):
            self.position = self.origin + num + 1
            self.has_matched = num >= NUM_MATCHED  # all but the first
            return []
        if self.position >= len(self._tokens) and not self._may_match(word):
            self._is_replacement, self._needs_more = False, True
            return []
        self._is_replacement = False
        if not self._num_aligned:
            self.position = self.origin
        while self._waiting and not self.has_matched:
            self._align(*self._waiting.pop(0))
        return [token for token, _ in self._waiting]

    def _may_match(self, word: str) -> bool:
        return bool(word) and word in self._words[self.origin :]

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
            # Of equal costs, an end at a match wins; then a substitution, which most errors are.
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
