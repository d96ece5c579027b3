"""Translate a draft with another tokenizer into its target's tokens.

The draft decodes in its own ids, by its own rules. Its words become the target's tokens by their bytes.
They are candidates, so a bad translation costs time and never changes the text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import ne

from specwhisper.audio.recording import Recording
from specwhisper.errors import UnsupportedOption
from specwhisper.model.backend import Encoder
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.generation import NUM_TIMESTAMPS
from specwhisper.model.checkpoints.tokenizer import merged
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions, Task
from specwhisper.speculation.acceptance import accept
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary
from specwhisper.types import Window, WordAlignment

# Letters 0 to 255 are bytes of UTF-8.
END = 256
FIRST_TIME = 257  # <|0.00|>; later timestamps follow, 20 ms apart
# As GPT-2 splits text into words before it merges bytes, on bytes: those of other scripts count as letters.
# Another split costs accepted tokens, never a word of the text.
WORD = re.compile(
    rb"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z\x80-\xff]+| ?[0-9]+| ?[^\sA-Za-z0-9\x80-\xff]+|\s+(?!\S)|\s+"
)
MAX_WORD_BYTES = 64  # scripts without spaces have no end of a word to wait for
MAX_CACHED_WORDS = 50_000

logger = logging.getLogger(__name__)

MAX_STEPS = 24  # own tokens until a word ends; a longer word is translated as far as it is there
IMPOSSIBLE = -100.0  # log-probability of the candidate of a draft that cannot continue
# A draft that lacks more of the target's words splits text otherwise, too.
MIN_SHARED_TEXT = 0.9


class Spelling:
    """The letters of a vocabulary's tokens, and byte pair encoding with its merges.

    The tokens of two byte-level vocabularies differ; their bytes do not. Timestamps and the end of the text
    are letters of their own, so they are matched by what they mean and never by id.

    The order of ids is the order of merges, as in every published Whisper vocabulary. In another vocabulary a
    text may be split otherwise than its own tokenizer would.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._letters: dict[int, tuple[int, ...]] = {}
        self._merged = lru_cache(MAX_CACHED_WORDS)(self._merge)
        self._ranks: dict[bytes, int] = {}
        for token, characters in enumerate(vocabulary.tokens[: vocabulary.end_of_text]):
            if characters and all(character in BYTE_OF_CHARACTER for character in characters):
                self._ranks.setdefault(vocabulary.token_bytes((token,)), token)

    def letters(self, token: int) -> tuple[int, ...]:
        """Return the letters of a token; none for prompt tokens."""
        letters = self._letters.get(token)
        if letters is None:
            letters = self._letters[token] = self._letters_of(token)
        return letters

    def _letters_of(self, token: int) -> tuple[int, ...]:
        vocabulary = self._vocabulary
        if token == vocabulary.end_of_text:
            return (END,)
        if vocabulary.is_timestamp(token):
            return (FIRST_TIME + token - vocabulary.timestamp_begin,)
        return tuple(vocabulary.token_bytes((token,))) if token < vocabulary.end_of_text else ()

    def spelled(self, tokens: Sequence[int]) -> list[int]:
        """Return the letters of tokens."""
        return list(chain.from_iterable(map(self.letters, tokens)))

    def tokens(self, letters: Sequence[int]) -> list[int]:
        """Return the tokens of letters, without those that the vocabulary lacks."""
        return [token for start, end in words(letters) for token in self.word(letters[start:end])]

    def word(self, letters: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens of one word, or of one timestamp or end."""
        if letters[0] == END:
            return (self._vocabulary.end_of_text,)
        if letters[0] >= FIRST_TIME:
            token = self._vocabulary.timestamp_begin + letters[0] - FIRST_TIME
            return (token,) if token < len(self._vocabulary) else ()
        return self._merged(bytes(letters))

    def _merge(self, word: bytes) -> tuple[int, ...]:
        known = bytes(byte for byte in word if bytes([byte]) in self._ranks)
        return tuple(self._ranks[part] for part in merged(known, self._ranks))


def words(letters: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each word, timestamp and end in letters."""
    start = 0
    while start < len(letters):
        if letters[start] >= END:
            yield start, start + 1
            start += 1
            continue
        end = next((i for i in range(start, len(letters)) if letters[i] >= END), len(letters))
        for match in WORD.finditer(bytes(letters[start:end])):
            first, last = start + match.start(), start + match.end()
            yield from ((i, min(i + MAX_WORD_BYTES, last)) for i in range(first, last, MAX_WORD_BYTES))
        start = end


def draft_ids(draft: Vocabulary, target: Vocabulary) -> list[int | None] | None:
    """Return the draft's id of every target token, ``None`` if it has none.

    Return ``None`` for the whole if the tokenizers differ: then the draft is translated. Tokens are matched
    by their strings. Ids of Whisper's vocabularies differ: large-v3 inserts ``<|yue|>``, which increases
    every later id by one, timestamps included.
    """
    if bool(draft.languages) != bool(target.languages):
        return None
    known = {token: i for i, token in enumerate(draft.tokens)}
    ids = [known.get(token) for token in target.tokens]
    if sum(i is not None for i in ids[: target.end_of_text]) < MIN_SHARED_TEXT * target.end_of_text:
        return None
    times = range(len(target))[target.timestamp_begin :][:NUM_TIMESTAMPS]
    needed = (target.end_of_text, target.start_of_transcript, *times)
    return None if any(ids[i] is None for i in needed) else ids


@dataclass(slots=True)
class _Answer:
    """The choices for a row, found one after the other.

    ``chosen``: tokens of the target with their log-probabilities.
    """

    row: Row
    chosen: list[tuple[int, float]] = field(default_factory=list)

    @property
    def agreed(self) -> Sequence[int]:
        return self.row.candidates[: len(self.chosen)]

    @property
    def is_complete(self) -> bool:
        """Whether a choice differs from its candidate, or none is left."""
        tokens = [token for token, _ in self.chosen]
        return len(tokens) > self.row.num_candidates or tokens != list(self.agreed)

    def scores(self, end_of_text: int) -> Scores:
        """Return the choices; those after a difference are made up."""
        missing = self.row.num_candidates + 1 - len(self.chosen)
        chosen = [*self.chosen, *[(end_of_text, IMPOSSIBLE)] * missing]
        return Scores(
            tokens=[token for token, _ in chosen],
            log_probs=[log_prob for _, log_prob in chosen],
            margins=[0.0] * len(chosen),
        )


@dataclass(slots=True)
class _Slot:
    """The same window twice: the target's tokens, and the draft's own, which may reach further.

    Attributes
    ----------
    fed : the target's tokens, its prompt first.
    num_prompt : how many of them are the prompt.
    prompt : the draft's own prompt; empty until the first step.
    own, log_probs : the draft's own tokens after it, and their log-probabilities; the target's have 0.
    num_cached : own tokens, the prompt included, whose keys and values the slot has.
    """

    fed: list[int] = field(default_factory=list)
    num_prompt: int = 0
    prompt: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    num_cached: int = 0


class TranslatedModel:
    """A draft in its own vocabulary that proposes tokens of ``target``'s."""

    has_word_times = False

    def __init__(self, own: WhisperModel, target: Vocabulary) -> None:
        self.vocabulary = target
        self.num_slots, self.num_mel_bins = own.num_slots, own.num_mel_bins
        self.max_positions, self.max_windows = target.max_length, own.max_windows
        self._own = own
        self._spelling, self._target_spelling = Spelling(own.vocabulary), Spelling(target)
        self._slots = [_Slot() for _ in range(own.num_slots)]

    def warm_up(self) -> None:
        self._own.warm_up()

    @property
    def bytes_per_slot(self) -> int:
        return self._own.bytes_per_slot

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._slots[slot] = _Slot()
        self._own.encode(slot, recording, start_frame)

    def length(self, slot: int) -> int:
        return len(self._slots[slot].fed)

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` of the target's tokens.

        The draft's own tokens after them stay until the target chooses something else.
        """
        state = self._slots[slot]
        del state.fed[length:]
        if not length:
            self._slots[slot] = state = _Slot()
        self._own.rollback(slot, state.num_cached)  # also after an error within a step

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        answers = [_Answer(row) for row in rows]
        for row in rows:
            state = self._slots[row.slot]
            state.fed += row.tokens[: len(row.tokens) - row.num_candidates]
            state.num_prompt = len(state.fed) - len(row.generated)
            if not state.prompt:
                state.prompt = self._prompt(state.fed[: state.num_prompt])
        waiting = answers
        for step in range(MAX_STEPS):
            for answer in waiting:
                self._answer(answer, is_last=step == MAX_STEPS - 1)
            waiting = [answer for answer in waiting if not answer.is_complete]
            waiting = [answer for answer in waiting if self._has_room(self._slots[answer.row.slot])]
            if not waiting:
                break
            self._step([answer.row for answer in waiting])
        for row in rows:
            self._slots[row.slot].fed += row.candidates
        return [answer.scores(self.vocabulary.end_of_text) for answer in answers]

    def _prompt(self, target_prompt: Sequence[int]) -> list[int]:
        """Return the draft's prompt; empty if it lacks the language or task."""
        own, target = self._own.vocabulary, self.vocabulary
        start = list(target_prompt).index(target.start_of_transcript)
        language = target.prompt_language(target_prompt[start:]) or "en"
        is_translation = target.tasks.get("translate") in target_prompt[start:]
        task = Task.TRANSLATE if is_translation else Task.TRANSCRIBE
        timestamps = target.no_timestamps not in target_prompt[start:] and own.no_timestamps is not None
        options = DecodingOptions(language=language, task=task, timestamps=timestamps)
        try:
            prompt = list(own.prompt(options))
        except UnsupportedOption:
            return []
        previous = self._spelling.tokens(self._target_spelling.spelled(target_prompt[:start]))
        if previous and own.start_of_prev is not None:
            prompt = [own.start_of_prev, *previous[1 - own.max_length // 2 :], *prompt]
        return prompt

    def _has_room(self, state: _Slot) -> bool:
        is_ended = bool(state.own) and state.own[-1] in self._own.vocabulary.ends
        room = self._own.max_positions - len(state.prompt) - len(state.own)
        return bool(state.prompt) and not is_ended and room > 0

    def _answer(self, answer: _Answer, *, is_last: bool) -> None:
        """Add the target's tokens that the draft's own ones decide by now."""
        state = self._slots[answer.row.slot]
        while state.prompt and not answer.is_complete:
            text = [*state.fed[state.num_prompt :], *answer.agreed]
            letters = self._target_spelling.spelled(text)
            self._follow(answer.row.slot, letters)
            found = self._next_token(state, len(letters), is_last=is_last)
            if found is None:
                return
            answer.chosen.append(found)

    def _follow(self, slot: int, letters: Sequence[int]) -> None:
        """Keep the own tokens that agree with the target's letters, and write those that are missing."""
        state, num_kept, at = self._slots[slot], 0, 0
        for token in state.own:
            spelled = self._spelling.letters(token)
            if any(map(ne, spelled, letters[at:])):
                break
            num_kept, at = num_kept + 1, at + len(spelled)
        del state.own[num_kept:], state.log_probs[num_kept:]
        missing = self._spelling.tokens(letters[at:])
        state.own += missing
        state.log_probs += [0.0] * len(missing)
        if state.num_cached > (length := len(state.prompt) + num_kept):
            state.num_cached = length
            self._own.rollback(slot, length)

    def _next_token(self, state: _Slot, position: int, *, is_last: bool) -> tuple[int, float] | None:
        """Return the target's token at a position of the draft's letters, and its log-probability.

        It is ``None`` while the word there is unfinished, unless ``is_last``.
        """
        letters = self._spelling.spelled(state.own)
        start, end = next((span for span in words(letters) if span[1] > position), (0, 0))
        if not end or (end == len(letters) and letters[start] < END and not is_last):
            return None
        for at in (start, position):  # from the position if the target has split the word otherwise so far
            for token in self._target_spelling.word(letters[at:end]):
                stop = at + len(self._target_spelling.letters(token))
                if at == position:
                    return token, self._log_prob(state, at, stop)
                at = stop
        return None

    def _log_prob(self, state: _Slot, start: int, end: int) -> float:
        """Return the sum of log-probabilities of the own tokens that begin within letters."""
        at, total = 0, 0.0
        for token, log_prob in zip(state.own, state.log_probs, strict=True):
            if start <= at < end:
                total += log_prob
            at += len(self._spelling.letters(token))
        return total

    def _step(self, rows: Sequence[Row]) -> None:
        """Extend each row's own tokens by a forward pass.

        The row's candidates are candidates there, too.
        """
        own_rows = [self._own_row(row) for row in rows]
        for row, scores in zip(own_rows, self._own.score(own_rows), strict=True):
            state = self._slots[row.slot]
            verdict = accept(
                row.candidates, scores.tokens, ends=self._own.vocabulary.ends, budget=len(scores.tokens)
            )
            state.own += verdict.tokens
            state.log_probs += scores.log_probs[: len(verdict.tokens)]
            state.num_cached = len(state.prompt) + len(state.own) - 1
            self._own.rollback(row.slot, state.num_cached)

    def _own_row(self, row: Row) -> Row:
        state = self._slots[row.slot]
        text = self._target_spelling.spelled([*state.fed[state.num_prompt :], *row.candidates])
        num_written = len(self._spelling.spelled(state.own))
        candidates = self._spelling.tokens(text[num_written:])
        room = self._own.max_positions - len(state.prompt) - len(state.own) - 1
        candidates = candidates[: max(0, room)]
        return Row(
            slot=row.slot,
            tokens=[*[*state.prompt, *state.own][state.num_cached :], *candidates],
            num_candidates=len(candidates),
            generated=tuple(state.own),
            timestamps=row.timestamps and self._own.vocabulary.no_timestamps is not None,
            max_initial_timestamp=row.max_initial_timestamp,
        )

    def can_continue(self, prompt: Sequence[int]) -> bool:
        return bool(self._prompt(prompt))

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        if not text.strip():
            return ()
        return tuple(self._target_spelling.tokens((" " * after_space + text.strip()).encode()))

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        raise UnsupportedOption("A draft with another tokenizer finds no word times: ask the target.")


def open_draft(
    checkpoint: Checkpoint,
    num_slots: int,
    target: Vocabulary,
    *,
    device: str = "cpu",
    encoder: Encoder | None = None,
    cut_windows: bool = False,
) -> WhisperModel | TranslatedModel:
    """Place a draft for a target's vocabulary, translated if it must be.

    Parameters
    ----------
    encoder : the draft's, loaded before; by default it is loaded onto the device.
    cut_windows : see :class:`specwhisper.model.model.WhisperModel`.
    """
    ids = draft_ids(checkpoint.vocabulary, target)
    is_translated = ids is None
    if is_translated:
        logger.info("draft translated by bytes", extra={"draft": checkpoint.name})
    model = WhisperModel(
        checkpoint,
        num_slots,
        device=device,
        encoder=encoder,
        vocabulary=None if is_translated else target,
        ids=None if ids == list(range(len(checkpoint.vocabulary))) else ids,
        cut_windows=cut_windows,
    )
    return TranslatedModel(model, target) if is_translated else model
