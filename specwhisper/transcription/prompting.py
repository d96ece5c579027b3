"""What a window is prompted with: the caller's words, and the text of the windows before it.

The rules are transformers' (``WhisperGenerationMixin._prepare_decoder_input_ids``), to which faster-whisper's
hotwords are added: they are a prompt that stays in front of everything. Where words that stay and the text
before would together leave a window no room to write in, which transformers refuses once it happens, the text
before gives way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.errors import UnsupportedOption
from specwhisper.transcription.vocabulary import Vocabulary

# Text of a window at this temperature or above is not the next window's prompt. As in transformers it may be
# a later one's; openai/whisper forgets all text up to a window above it for good.
CONDITION_BELOW_TEMPERATURE = 0.5


@dataclass(frozen=True, slots=True)
class PromptText:
    """The caller's words as tokens; ``is_carried`` keeps ``initial`` in front of the previous text."""

    initial: tuple[int, ...] = ()
    hotwords: tuple[int, ...] = ()
    is_carried: bool = False


class PreviousText:
    """Remembers what was written, as far as a prompt can hold it.

    Attributes
    ----------
    tokens : the previous text, initial prompt included where it counts as such.
    """

    def __init__(self, vocabulary: Vocabulary, words: PromptText, *, condition: bool) -> None:
        self._vocabulary = vocabulary
        self._words = words
        self._condition = condition
        self._max_tokens = vocabulary.max_length // 2 - 1
        self._max_in_front = vocabulary.max_length * 3 // 4
        self._is_believed = True
        self.tokens = () if words.is_carried else words.initial
        self._has_any = bool(self.tokens)
        given = len(words.initial) + len(words.hotwords)
        if given and vocabulary.start_of_prev is None:
            raise UnsupportedOption("This model takes no prompt: leave initial_prompt and hotwords out.")
        if given and given > self._max_tokens:
            raise UnsupportedOption(
                f"The prompt has {given} tokens, hotwords included; this model takes at most "
                f"{self._max_tokens}: shorten it."
            )

    def prefix(self) -> tuple[int, ...]:
        """Give what stands before ``<|startoftranscript|>`` in the next window."""
        start, words = self._vocabulary.start_of_prev, self._words
        if self._condition and self._is_believed and self._has_any:
            carried = words.initial if words.is_carried else ()
            begin = () if start is None else (start,)
            given = (*begin, *words.hotwords, *carried)
            room = self._max_in_front - len(given)
            return (*given, *self.tokens[max(0, len(self.tokens) - room) :])
        if start is None or not (words.initial or words.hotwords):
            return ()
        return (start, *words.hotwords, *words.initial)

    def append(self, segments: Sequence[Sequence[int]], temperature: float) -> None:
        """Note a window's segments and how hot it was decoded."""
        self._is_believed = temperature < CONDITION_BELOW_TEMPERATURE
        if not self._condition:
            return
        for tokens in segments:
            # A segment may end with its own closing time and the opening one of the next: one is enough.
            doubled = len(tokens) > 2 and self._vocabulary.is_timestamp(tokens[-2])
            self._remember(tokens[:-1] if doubled else tokens)

    def resume(self, tokens: Sequence[int]) -> None:
        """Take over what another target remembered."""
        if tokens:
            self.tokens = ()
            self._remember(tokens)

    def _remember(self, tokens: Sequence[int]) -> None:
        self._has_any = True
        self.tokens = (*self.tokens, *tokens)[-self._max_tokens :]
