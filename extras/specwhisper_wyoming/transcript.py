"""The text of an utterance, in chunks that join to the whole."""

from __future__ import annotations


class TranscriptText:
    """Joins final text to chunks, and chunks to the whole.

    Neither the whole nor the joined chunks begin or end with spaces.

    Attributes
    ----------
    text : all chunks, joined.
    """

    def __init__(self) -> None:
        self.text = ""
        self._spaces = ""  # at the end of what was added: they belong to a chunk that may not follow

    def add(self, text: str) -> str:
        """Add final text; return the next chunk, empty where there is none."""
        text = self._spaces + text
        if not self.text:
            text = text.lstrip()
        chunk = text.rstrip()
        self._spaces = text[len(chunk) :]
        self.text += chunk
        return chunk
