"""A Whisper vocabulary as plain data: token strings, and ids of special tokens.

The target publishes it (``Describe``), so a draft server needs no file of the target's checkpoint: it maps
its own vocabulary onto this one by token string, and decodes ids to text with it.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions

COPY_CONFIG_ADVICE = (
    ", or copy the generation_config.json of the model it was tuned from: its own is missing or old."
)


@dataclass(frozen=True)
class Vocabulary:
    """Token strings in id order and the ids that decoding needs.

    Attributes
    ----------
    tokens : byte-level BPE strings as tokenizers write them (a space is ``Ġ``); specials as ``<|...|>``.
    end_of_text : first special id; ids below it are text.
    more_ends : further ids that end a text, such as those of chat models; never sent over the wire.
    start_of_transcript, no_timestamps : prompt tokens; ``no_timestamps`` is ``None`` where a model has none.
    timestamp_begin : id of ``<|0.00|>``; it and all higher ids are timestamps, 20 ms apart.
    languages, tasks : ids of the prompt tokens by code and name; both empty for English-only models.
    own_language : the language that a model was fine-tuned to; ``None`` if it must be detected.
    start_of_prev : id in front of earlier text in a prompt; ``None`` where a model has none.
    no_speech : id whose probability is that of silence; ``None`` where a model has none.
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
    _words: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _bytes: dict[int, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ends(self) -> frozenset[int]:
        return frozenset((self.end_of_text, *self.more_ends))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over tokens and ids, in hexadecimal: with equal digests, ids are interchangeable."""
        content = (
            self.tokens,
            (self.end_of_text, self.start_of_transcript, self.no_timestamps, self.timestamp_begin),
            (sorted(self.languages.items()), sorted(self.tasks.items())),
            (self.suppress, self.begin_suppress, self.max_initial_timestamp, self.max_length),
            (self.start_of_prev, self.no_speech, self.own_language, self.more_ends),
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def check(self, options: DecodingOptions) -> None:
        """Raise ``UnsupportedOption`` for options that this model does not have."""
        if self.languages:
            asked = options.languages or (options.language,)
            if unknown := [code for code in asked if code not in (*self.languages, None)]:
                known = ", ".join(sorted(self.languages))
                raise UnsupportedOption(f"Language '{unknown[0]}' is unknown to this model; it has: {known}.")
            if options.task not in self.tasks:
                raise UnsupportedOption(f"Task '{options.task}' is unknown to this model.")
        elif options.languages or options.language not in (None, "en") or options.task != "transcribe":
            if self.no_timestamps is None:
                raise UnsupportedOption(
                    f"This model has no languages: leave language and task out{COPY_CONFIG_ADVICE}"
                )
            raise UnsupportedOption("This model is English-only: it transcribes English and nothing else.")
        if options.multilingual and len(self.languages) < 2:
            raise UnsupportedOption("This model has one language: leave multilingual out.")
        if options.timestamps and self.no_timestamps is None:
            raise UnsupportedOption(f"This model has no timestamps: turn them off{COPY_CONFIG_ADVICE}")

    @property
    def default_language(self) -> str | None:
        """The language of a model that has one; ``None`` if it must be detected."""
        if not self.languages:
            return "en"
        return next(iter(self.languages)) if len(self.languages) == 1 else self.own_language

    def prompt(self, options: DecodingOptions, language: str | None = None) -> tuple[int, ...]:
        """Return the prompt tokens; ``language`` is the detected one, used if the options name none."""
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

    def is_timestamp(self, token: int) -> bool:
        """Return whether the token is one of ``<|0.00|>`` ... ``<|30.00|>``."""
        return token >= self.timestamp_begin

    def decode(self, ids: Iterable[int]) -> str:
        """Decode the text tokens among ids; broken UTF-8 is replaced."""
        return self.token_bytes(ids).decode("utf-8", errors="replace")

    def decode_unfinished(self, ids: Iterable[int], after: Iterable[int] = ()) -> str:
        """Return the text of tokens up to its last whole character.

        ``after``: the tokens before them; an incomplete last character of those begins the text.
        """
        data, incomplete = self.token_bytes(ids), _whole_characters(self.token_bytes(after))[1]
        continues = bool(data) and data[0] & 0xC0 == 0x80
        return _whole_characters(incomplete + data if continues else data)[0]

    def word_of(self, token: int) -> str:
        """Return a token's text without case, spaces and punctuation; empty for special tokens."""
        word = self._words.get(token)
        if word is None:
            data = self.token_bytes((token,))
            try:
                text = data.decode().casefold()
                word = "".join(character for character in text if character.isalnum())
            except UnicodeDecodeError:  # a part of a character
                word = data.decode("latin-1")
            self._words[token] = word
        return word

    def without_ending(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return tokens without times, end-of-text and punctuation that only the audio's end caused."""
        end = len(tokens)
        while end and (tokens[end - 1] >= self.end_of_text or self._is_punctuation(tokens[end - 1])):
            end -= 1
        return tuple(tokens[:end])

    def _is_punctuation(self, token: int) -> bool:
        text = self.token_bytes((token,))
        return text.isascii() and not any(chr(byte).isalnum() for byte in text)

    def token_bytes(self, ids: Iterable[int]) -> bytes:
        """Join the bytes of the text tokens among ``ids``."""
        return b"".join([self._bytes_of(i) for i in ids if i < self.end_of_text])

    def _bytes_of(self, token: int) -> bytes:
        data = self._bytes.get(token)
        if data is None:
            data = self._bytes[token] = bytes([BYTE_OF_CHARACTER[c] for c in self.tokens[token]])
        return data


UNSPACED = frozenset(("zh", "yue", "ja", "th", "lo", "my"))  # languages that put no spaces between words


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """Decode UTF-8, broken bytes replaced; return the bytes of an incomplete last character too."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's reversible byte alphabet.

    Printable bytes stand for themselves; the others are the characters above 255.
    """
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()
