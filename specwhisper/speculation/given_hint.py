"""A hint from outside, which runs through all windows of a session.

It may be captions, a script or an older transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specwhisper.speculation.hints import Hint

CHUNK_CHARACTERS = 4_000  # tokenized at once, in a few milliseconds
GIVEN_RATE = 0.9
MIN_AHEAD = 512  # tokens after the position: more than a window has


class GivenHint(Hint):
    """A text, tokenized as the windows reach it.

    Windows are decoded again, whole or from a time on: the hint goes back to where the next window begins.

    Parameters
    ----------
    tokenize : returns the tokens of a piece of text.
    """

    def __init__(
        self, text: str, tokenize: Callable[[str], Sequence[int]], word_of: Callable[[int], str]
    ) -> None:
        super().__init__((), word_of, rate=GIVEN_RATE)
        self._tokenize = tokenize
        self._chunks = _chunks(text)
        self._starts: list[int | None] = [0]  # position after so many tokens of the window
        self._extend_to(MIN_AHEAD)

    def open_window(self, num_kept: int) -> None:
        """Turn to the next window.

        Parameters
        ----------
        num_kept : tokens of the last window whose audio is not decoded again.
        """
        start = self._starts[min(num_kept, len(self._starts) - 1)]
        self.seek(start)
        self._starts = [start]
        # A lost hint is searched in more and more of the text.
        self._extend_to(len(self) + 1 if start is None else start + MIN_AHEAD)

    def follow(self, token: int) -> None:
        """Take the next committed token of the window."""
        super().follow(token)
        self._starts.append(self.position)

    def _extend_to(self, num_tokens: int) -> None:
        while len(self) < num_tokens and (chunk := next(self._chunks, None)) is not None:
            self.extend(self._tokenize(chunk))


def _chunks(text: str) -> Iterator[str]:
    """Split a text between words."""
    text = " ".join(text.replace("<|", "< |").split())  # no special tokens
    start = 0
    while start < len(text):
        most = start + 2 * CHUNK_CHARACTERS
        end = text.find(" ", start + CHUNK_CHARACTERS, most)
        if end < 0:  # the last piece, or a language without spaces
            end = len(text) if len(text) <= most else start + CHUNK_CHARACTERS
        yield text[start:end]
        start = end
