"""Build a window's prompt from the caller's words and the text before it.

The rules are transformers' (``WhisperGenerationMixin._prepare_decoder_input_ids``). faster-whisper's hotwords
are added: they stay in front of every prompt. If words are too long, the last tokens count, as in
openai/whisper, hotwords first. If all of this would leave a window no room for its own tokens, the text
before is shortened; transformers raises an error in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specwhisper.errors import UnsupportedOption
from specwhisper.transcription.vocabulary import Vocabulary

# Text of a window at this temperature or above is not in the next window's prompt. As in transformers it may
# be in a later one's; openai/whisper drops all text up to such a window.
CONDITION_BELOW_TEMPERATURE = 0.5
START_OF_PREV = "<|startofprev|>"


@dataclass(frozen=True, slots=True)
class PromptText:
    """The caller's words as tokens.

    Attributes
    ----------
    is_carried : whether ``initial`` stays in front of the previous text.
    """

    initial: tuple[int, ...] = ()
    hotwords: tuple[int, ...] = ()
    is_carried: bool = False


class PreviousText:
    """Keeps as much of the earlier text as a prompt can hold.

    Attributes
    ----------
    tokens : the previous text, initial prompt included where it counts as such.
    """

    def __init__(self, vocabulary: Vocabulary, words: PromptText, *, condition: bool) -> None:
        self._vocabulary = vocabulary
        self._max_tokens = vocabulary.max_length // 2 - 1
        self._words = words = _fitting(words, self._max_tokens)
        self._condition = condition
        self._max_in_front = vocabulary.max_length * 3 // 4
        self._is_confident = True
        self.tokens = () if words.is_carried else words.initial
        self._has_any = bool(self.tokens)
        start = vocabulary.start_of_prev
        # If another token stands for it, transformers prepends that to previous text but not to prompts.
        if (words.initial or words.hotwords) and (start is None or vocabulary.tokens[start] != START_OF_PREV):
            raise UnsupportedOption("This model takes no prompt: leave initial_prompt and hotwords out.")

    def prefix(self) -> tuple[int, ...]:
        """Return the tokens before ``<|startoftranscript|>`` in the next window."""
        start, words = self._vocabulary.start_of_prev, self._words
        if self._condition and self._is_confident and self._has_any:
            carried = words.initial if words.is_carried else ()
            begin = () if start is None else (start,)
            given = (*begin, *words.hotwords, *carried)
            room = self._max_in_front - len(given)
            return (*given, *self.tokens[max(0, len(self.tokens) - room) :])
        if start is None or not (words.initial or words.hotwords):
            return ()
        return (start, *words.hotwords, *words.initial)

    def append(self, segments: Sequence[Sequence[int]], temperature: float) -> None:
        """Add a window's segments, decoded at a temperature."""
        self._is_confident = temperature < CONDITION_BELOW_TEMPERATURE
        if not self._condition:
            return
        for tokens in segments:
            # A segment may end with its own closing time and the opening one of the next: one is enough.
            doubled = len(tokens) > 2 and self._vocabulary.is_timestamp(tokens[-2])
            self._remember(tokens[:-1] if doubled else tokens)

    def resume(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.tokens = ()
            self._remember(tokens)

    def _remember(self, tokens: Sequence[int]) -> None:
        self._has_any = True
        self.tokens = (*self.tokens, *tokens)[-self._max_tokens :]


def _fitting(words: PromptText, max_tokens: int) -> PromptText:
    """Return the last tokens of words that are too long."""
    hotwords = words.hotwords[max(0, len(words.hotwords) - max_tokens) :]
    num_left_out = len(words.initial) + len(hotwords) - max_tokens
    return replace(words, hotwords=hotwords, initial=words.initial[max(0, num_left_out) :])
