"""A Whisper vocabulary as plain data: token strings, the special tokens' ids and the decoding rules' ids.

The target publishes it (``Describe``), so that a draft server needs no file of the target's checkpoint: it
maps its own vocabulary onto this one by token string and turns ids into text with it.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions


@dataclass(frozen=True)
class Vocabulary:
    """Token strings in id order and the ids that decoding needs.

    Attributes
    ----------
    tokens : byte-level BPE strings as tokenizers write them (a space is ``Ġ``); specials as ``<|...|>``.
    end_of_text : first special id; ids below it are text.
    more_ends : further ids that end a text, as chat models have them; Whisper has none, nor has the wire.
    start_of_transcript, no_timestamps : prompt tokens; ``no_timestamps`` is ``None`` where a model has none.
    timestamp_begin : id of ``<|0.00|>``; ids from it on are timestamps, 20 ms apart.
    languages, tasks : ids of the prompt tokens by code and name; both empty for English-only models.
    own_language : what a model was tuned to where the caller names no language; ``None`` to detect it.
    start_of_prev : what earlier text is prompted behind, and ``no_speech``, whose probability tells silence;
        ``None`` where a model has none.
    suppress, begin_suppress : ids that are never generated, and never generated first.
    max_initial_timestamp : largest timestamp index allowed for the first token, or ``None``.
    max_length : most tokens of a window, prompt included.
    """

    tokens: tuple[str, ...]
    end_of_text: int
    start_of_transcript: int
    no_timestamps: int | None
    timestamp_begin: int
    languages: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    suppress: tuple[int, ...] = ()
    begin_suppress: tuple[int, ...] = ()
    max_initial_timestamp: int | None = None
    max_length: int = 448
    start_of_prev: int | None = None
    no_speech: int | None = None
    own_language: str | None = None
    more_ends: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ends(self) -> frozenset[int]:
        """The ids that end a window."""
        return frozenset((self.end_of_text, *self.more_ends))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over tokens and decoding ids, in hexadecimal; equal digests mean interchangeable ids."""
        content = (
            self.tokens,
            (self.end_of_text, self.start_of_transcript, self.no_timestamps, self.timestamp_begin),
            (sorted(self.languages.items()), sorted(self.tasks.items())),
            (self.suppress, self.begin_suppress, self.max_initial_timestamp, self.max_length),
            (self.start_of_prev, self.no_speech, self.own_language, self.more_ends),
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def check(self, options: DecodingOptions) -> None:
        """Refuse what this model cannot do."""
        if self.languages:
            if options.language is not None and options.language not in self.languages:
                known = ", ".join(sorted(self.languages))
                raise UnsupportedOption(
                    f"Language '{options.language}' is unknown to this model; it has: {known}."
                )
            if options.task not in self.tasks:
                raise UnsupportedOption(f"Task '{options.task}' is unknown to this model.")
        elif options.language not in (None, "en") or options.task != "transcribe":
            raise UnsupportedOption("This model is English-only: it transcribes English and nothing else.")
        if options.timestamps and self.no_timestamps is None:
            raise UnsupportedOption("This model has no timestamps: ask for none.")
        if options.no_speech_threshold is not None and self.no_speech is None:
            raise UnsupportedOption("This model does not tell silence: leave no_speech_threshold out.")

    @property
    def default_language(self) -> str | None:
        """The language of a model that knows one, or was tuned to one; else it is detected."""
        if not self.languages:
            return "en"
        return next(iter(self.languages)) if len(self.languages) == 1 else self.own_language

    def prompt(self, options: DecodingOptions, language: str | None = None) -> tuple[int, ...]:
        """Give the tokens that tell Whisper language, task and whether to write timestamps.

        ``language`` is what was detected where the options name none.
        """
        self.check(options)
        prompt = [self.start_of_transcript]
        if self.languages:
            language = options.language or language or self.default_language
            if language is None:
                raise ValueError("The language must be detected before there is a prompt.")
            prompt += [self.languages[language], self.tasks[options.task]]
        if not options.timestamps and self.no_timestamps is not None:
            prompt.append(self.no_timestamps)
        return tuple(prompt)

    def prompt_language(self, prompt: Iterable[int]) -> str | None:
        """Return the language that a prompt names; ``None`` if it names none."""
        return next((self._language_of[token] for token in prompt if token in self._language_of), None)

    @cached_property
    def _language_of(self) -> Mapping[int, str]:
        return {token: code for code, token in self.languages.items()}

    def text_tokens(self, tokens: Iterable[int]) -> tuple[int, ...]:
        """Return the text tokens, without timestamps and other special ones."""
        return tuple(token for token in tokens if token < self.end_of_text)

    def is_timestamp(self, token: int) -> bool:
        """Whether the token is one of ``<|0.00|>`` ... ``<|30.00|>``."""
        return token >= self.timestamp_begin

    def decode(self, ids: Iterable[int]) -> str:
        """Turn text tokens into text, special ones left out; broken UTF-8 is replaced."""
        return self.token_bytes(ids).decode("utf-8", errors="replace")

    def decode_unfinished(self, ids: Iterable[int], after: Iterable[int] = ()) -> str:
        """Return the text of tokens that others may follow, up to its last whole character.

        Parameters
        ----------
        after : the tokens that they follow; a last character that is not whole there begins the text.
        """
        data, held = self.token_bytes(ids), _whole_characters(self.token_bytes(after))[1]
        goes_on = bool(data) and data[0] & 0xC0 == 0x80
        return _whole_characters(held + data if goes_on else data)[0]

    def may_begin_word(self, token: int, language: str | None = None) -> bool:
        """Whether text can be cut in front of a text token: a word, or punctuation, begins with it."""
        first = self.token_bytes((token,))[:1]
        if language in UNSPACED:
            return not first or first[0] & 0xC0 != 0x80  # but never within a character
        return not first or (first[0] < 0x80 and not first.isalnum())

    def without_ending(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Leave out what ends a text only because the audio did: times, end-of-text, punctuation."""
        end = len(tokens)
        while end and (tokens[end - 1] >= self.end_of_text or self._is_punctuation(tokens[end - 1])):
            end -= 1
        return tuple(tokens[:end])

    def _is_punctuation(self, token: int) -> bool:
        text = self.token_bytes((token,))
        return text.isascii() and not any(chr(byte).isalnum() for byte in text)

    def token_bytes(self, ids: Iterable[int]) -> bytes:
        """Join the bytes of the text tokens among ``ids``."""
        return b"".join(
            bytes(BYTE_OF_CHARACTER[c] for c in self.tokens[i]) for i in ids if i < self.end_of_text
        )


UNSPACED = frozenset(("zh", "yue", "ja", "th", "lo", "my"))  # languages that put no spaces between words


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """Decode UTF-8, broken bytes replaced, and give what is left of a character that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


def _byte_of_character() -> dict[str, int]:
    """GPT-2's reversible byte alphabet: printable bytes stand for themselves, the rest follow from 256 on."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()
