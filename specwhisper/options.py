"""The options of a transcription, as openai/whisper and transformers mean them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from specwhisper.errors import InvalidRequest, UnsupportedOption, within_floats
from specwhisper.languages import language_code, language_codes
from specwhisper.live import LiveOptions
from specwhisper.selection import ALL_AUDIO, Selection, VadOptions, to_vad_options
from specwhisper.validated import (
    ABOVE_0,
    LARGEST,
    Rule,
    called,
    choice,
    described,
    is_number,
    number,
    option,
    switch,
    text,
    to_floats,
    to_text,
    validate,
    whole,
)

NO_BEAMS = (
    "Beam search is not offered: a beam reorders its past at every token, which no draft can predict; "
    "leave beam_size at 1, or sample with a temperature."
)
MAX_HINT_BYTES = 200_000  # about four hours of English; a message holds 262,144
MAX_SEED = 2**63 - 1
MAX_TEMPERATURES = 16
# Logits are divided by a temperature in float32. With a smaller one, the quotients overflow; a larger one
# overflows itself.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6


class Task(StrEnum):
    """Whether Whisper writes the speech's own language or English."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class CompressionRatio(StrEnum):
    """Which data is compressed to detect a text that repeats itself."""

    TOKENS = "tokens"  # the bytes of the token ids, as transformers does; its advice is a threshold of 1.35
    TEXT = "text"  # the text, as openai/whisper does; its threshold is 2.4


class Padding(StrEnum):
    """Content of a window after the end of the audio."""

    SILENCE = "silence"  # as in transformers: a shorter recording is one of 30 s
    ZERO = "zero"  # features of 0, as in openai/whisper and faster-whisper: windows end with the audio


class WordTimes(StrEnum):
    """How the times of words are found."""

    SOUND = "sound"  # cross-attention, without the silence at either side
    MODEL = "model"  # cross-attention alone, as in transformers: silence is part of a word beside it


THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
# Plain greedy decoding: every window is kept, whatever its text is.
GREEDY: Mapping[str, Any] = MappingProxyType({"temperatures": (0.0,), **dict.fromkeys(THRESHOLDS)})

# Options that live audio doesn't have, and why.
FOR_RECORDINGS = {
    "hallucination_silence_threshold": "whose silence is never decoded",
    "condition_on_previous_text": "whose windows hold the audio of the text before, too",
    "multilingual": "which detects the language of each utterance",
    "vad_filter": "which has endpointing",
}

# Options of other Whisper programs that have another name here.
OTHER_NAMES = {
    "temperature": "temperatures",
    "max_initial_timestamp": "max_initial_timestamp_s",
    "without_timestamps": "timestamps",
    "max_tokens": "max_new_tokens",
    "k": "top_k",
    "log_prob_threshold": "logprob_threshold",
    "prompt": "initial_prompt",
    "keywords": "hotwords",
}


def _to_language(value: Any) -> str | None:
    return language_code(to_text(value)) or None  # a blank one is none, as on the wire


def _to_words(value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return to_text(value)
    if not all(isinstance(word, str) for word in value):
        raise ValueError("it must be text, or a list of texts")
    return to_text(", ".join(value))


@described
@dataclass(frozen=True, slots=True)
class DecodingOptions(Selection):
    """Options of a transcription.

    The same options and audio result in the same text in every mode. Only ``acceptance_threshold`` can make
    the text depend on the draft.

    ``None`` leaves an option out; choices may be given as plain strings, and a single temperature as a
    number. Temperatures and thresholds are openai/whisper's and faster-whisper's by default; :meth:`greedy`
    has none.

    Raises
    ------
    InvalidRequest : for a value that an option cannot have, and for options that contradict each other.
    """

    # Also read from a language's English name. English-only checkpoints take "en" and None.
    language: str | None = option(
        None,
        "Code or name of the language; en-US is en. Default: the model's own, or the detected one.",
        "LANGUAGE",
        read=_to_language,
    )
    multilingual: bool = switch(False, "Detect the language in every window, not only in the first.")
    # Windows of recordings end where another language begins. A single one is the `language`.
    languages: tuple[str, ...] = option(
        (), "Languages that may be spoken, as en,fr,de: no other is detected.", "CODES", read=language_codes
    )
    task: Task = choice(Task.TRANSCRIBE, "Task: transcribe, or translate into English.", "TASK")
    timestamps: bool = switch(
        True, "Write the times of segments; without them, a window always advances by 30 s."
    )
    word_timestamps: bool = switch(False, "Write the times of words, for one more forward pass per window.")
    word_times: WordTimes = choice(
        WordTimes.SOUND,
        "Times of words: trimmed to the sound, or as cross-attention gives them, as in transformers.",
        "sound|model",
        needs=("word_timestamps", "diarize"),
    )
    initial_prompt: str = text(
        "",
        "Prompt of every window, or of the first one only if the others are prompted with the previous text.",
    )
    carry_initial_prompt: bool = switch(
        False, "Put the initial prompt in every window, before the previous text."
    )
    # If these and the initial prompt have more tokens than fit into half a window, the last ones count.
    hotwords: str = option("", "Words before the prompt of every window.", "TEXT", read=_to_words)
    # Makes a transcription faster; changes no text unless there is an `acceptance_threshold`.
    hint: str = option(
        "",
        "Text that the audio probably contains, such as captions; the target verifies it like a draft.",
        "TEXT",
        read=to_text,
        rules=(
            Rule(
                lambda value: len(value.encode("utf-8", "replace")) <= MAX_HINT_BYTES,
                f"it may have at most {MAX_HINT_BYTES} bytes",
            ),
        ),
    )
    vad_filter: bool = switch(
        False,
        "Transcribe only speech, which silero-vad's model finds. Needs the extra vad.",
        not_with=("as_live",),
    )
    vad_parameters: VadOptions | None = option(
        None,
        "Which parts are speech, as faster-whisper's `VadOptions`: an object, as JSON or in fields such as "
        "`vad_parameters[speech_pad_ms]`.",
        read=to_vad_options,
    )
    condition_on_previous_text: bool = switch(False, "Use the previous text as the prompt of each window.")
    padding: Padding = choice(
        Padding.SILENCE,
        "Content of windows after the end of the audio: silence, as in transformers, or features of 0, as in "
        "openai-whisper and faster-whisper.",
        "silence|zero",
    )
    strict: bool = switch(False, "Refuse damaged recordings instead of warning.")
    temperatures: tuple[float, ...] = option(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        "Sampling temperatures, tried in order until a window passes the thresholds; 0 is greedy.",
        "T",
        read=to_floats,
        rules=(
            Rule(
                lambda all_: all_ and all(t == 0 or MIN_TEMPERATURE <= t <= MAX_TEMPERATURE for t in all_),
                f"name at least one, each 0 or from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}",
            ),
            Rule(lambda all_: list(all_) == sorted(set(all_)), "each must be higher than the one before it"),
            Rule(lambda all_: len(all_) <= MAX_TEMPERATURES, f"at most {MAX_TEMPERATURES} are tried"),
        ),
    )
    # transformers' advice is a threshold of 1.35 for tokens.
    compression_ratio_threshold: float | None = number(
        2.4,
        ABOVE_0,
        LARGEST,
        "Compression ratio above which a window failed.",
        "X|None",
        takes_none=True,
        must="it must be above 0, or None for no threshold",
    )
    compression_ratio_of: CompressionRatio = choice(
        CompressionRatio.TEXT,
        "What is compressed for the ratio: the text, as in openai-whisper, or the tokens, as in "
        "transformers.",
        "text|tokens",
    )
    # Natural logarithm, end-of-text included.
    logprob_threshold: float | None = number(
        -1.0,
        -LARGEST,
        0,
        "Mean log-probability below which a window failed.",
        "X|None",
        takes_none=True,
        must="a log-probability is 0 or less, or None for no threshold",
    )
    no_speech_threshold: float | None = number(  # models without timestamps know none
        0.6,
        0,
        1,
        "Probability of silence above which a window is skipped, unless its mean log-probability reaches "
        "--logprob-threshold.",
        "P|None",
        takes_none=True,
        must="it must be a probability, or None for no threshold",
    )
    top_k: int = whole(
        0,
        0,
        2**31 - 1,
        "Number of likeliest tokens to sample among; 0: all.",
        must="it must be 0 for all tokens, or their number",
    )
    top_p: float = number(1.0, ABOVE_0, 1, "Total probability of the likeliest tokens to sample among.", "P")
    seed: int = whole(0, 0, MAX_SEED, "Seed of sampling; the same seed results in the same text.")
    # As in openai/whisper. The words also decide where the next window begins.
    hallucination_silence_threshold: float | None = number(
        None,
        0,
        LARGEST,
        "Silence between which segments that are probably invented are left out; needs --word-timestamps.",
        "SECONDS",
        must="it must be at least 0 seconds, or left out",
    )
    max_initial_timestamp_s: float | None = number(
        None,
        0,
        30,
        "Latest start of a window's first segment. Default: the model's.",
        "SECONDS",
        flags=("max-initial-timestamp",),
        must="it must lie between 0 and 30 seconds, or be left out",
    )
    max_new_tokens: int | None = whole(
        None,
        1,
        math.inf,
        "Most tokens of a window. Default: the model's.",
        flags=("max-new-tokens", "max-tokens"),
        must="it must be at least 1, or left out",
    )
    acceptance_threshold: float | None = number(
        None,
        ABOVE_0,
        1,
        "LOSSY: keep a candidate that is not the target's choice if the target gives it at least this "
        "probability. Default: none.",
        "P",
        must="it must be a probability above 0; leave it out for the target's own text",
    )
    # Largest log10 mel power of the whole recording by number of mel bins, if it is known beforehand (a
    # file): features are clamped relative to it, as transformers does, else to the loudest moment so far.
    log_mel_max: Mapping[int, float] = option(
        dict,
        rules=(Rule(lambda all_: all(map(math.isfinite, all_.values())), "each must be a finite number"),),
    )
    live: LiveOptions | None = None  # for live audio; windows of recordings follow Whisper's own rules

    def __post_init__(self) -> None:
        validate(self)
        if self.carry_initial_prompt and not self.initial_prompt.strip():
            raise InvalidRequest(
                f"{called('carry_initial_prompt')} is True: there is no {called('initial_prompt')} to carry."
            )
        if self.hallucination_silence_threshold is not None and not self.word_timestamps:
            raise InvalidRequest(
                f"{called('hallucination_silence_threshold')} needs times of words: add "
                f"{called('word_timestamps')}."
            )
        if len(self.languages) == 1 and self.language is None:
            object.__setattr__(self, "language", self.languages[0])
            object.__setattr__(self, "languages", ())
        spoken = [called(name) for name in ("language", "languages", "multilingual") if getattr(self, name)]
        if len(spoken) > 1:
            raise InvalidRequest(f"{spoken[0]} and {spoken[1]} exclude each other: leave one out.", spoken[1])
        if self.vad_parameters is not None and not self.vad_filter:
            raise InvalidRequest(
                f"{called('vad_parameters')} are set: they have no effect without {called('vad_filter')}.",
                called("vad_parameters"),
            )
        for name, instead in FOR_RECORDINGS.items():
            if self.live is not None and getattr(self, name):
                raise InvalidRequest(
                    f"{called(name)} is for recordings: leave it out of live audio, {instead}."
                )

    @classmethod
    def greedy(cls, **options: Any) -> DecodingOptions:
        """Return options without fallback, and without thresholds that are not given."""
        return cls(**{**GREEDY, **options})

    @property
    def vad(self) -> VadOptions | None:
        """How speech is found; ``None`` if the whole recording is transcribed."""
        return (self.vad_parameters or VadOptions()) if self.vad_filter else None

    def for_pcm(self) -> DecodingOptions:
        """Return the options for audio that was decoded and holds only speech."""
        selection: dict[str, Any] = asdict(ALL_AUDIO)
        return replace(self, vad_filter=False, vad_parameters=None, strict=False, **selection)

    @property
    def has_words(self) -> bool:
        """Whether prompts have words of the caller."""
        return bool(self.initial_prompt or self.hotwords)

    @property
    def is_lossy(self) -> bool:
        """Whether the text may differ from the target's own."""
        return self.acceptance_threshold is not None


def options_from(defaults: DecodingOptions | Mapping[str, Any], given: Mapping[str, Any]) -> DecodingOptions:
    """Read options from keywords; ``given`` ones override ``defaults``.

    A given ``None`` overrides a default too: it leaves the option out. ``greedy`` leaves out fallback and
    thresholds that are not given, as :meth:`DecodingOptions.greedy`. Other names that are taken, as in other
    Whisper programs: ``temperature`` (one or several), ``temperature_increment_on_fallback``,
    ``max_initial_timestamp``, ``without_timestamps``, ``max_tokens``, ``k``, ``log_prob_threshold``,
    OpenAI's ``prompt`` and ``keywords``, and ``beam_size`` and ``num_beams`` if they are 1.

    Raises
    ------
    UnsupportedOption : for more than one beam.
    InvalidRequest : for an unknown option, and as :class:`DecodingOptions` does.
    """
    if isinstance(defaults, DecodingOptions):
        defaults = {option.name: getattr(defaults, option.name) for option in fields(defaults)}
    wanted = dict(given)
    if wanted.pop("greedy", False):
        defaults = {**defaults, **GREEDY}
    for name in ("beam_size", "num_beams"):
        if wanted.pop(name, None) not in (None, 1):
            raise UnsupportedOption(NO_BEAMS)
    if isinstance(without := wanted.get("without_timestamps"), bool):
        wanted["without_timestamps"] = not without
    for other, name in OTHER_NAMES.items():
        if other in wanted:
            value = wanted.pop(other)
            if wanted.get(name) is None:
                wanted[name] = value
            elif value is not None and value != wanted[name]:
                raise InvalidRequest(f"Both {other} and {name} are set, and differ: leave one out.", other)
    increment = wanted.pop("temperature_increment_on_fallback", None)
    if increment is not None:
        wanted["temperatures"] = fallback_temperatures(wanted.get("temperatures") or 0.0, increment)
    known = {option.name for option in fields(DecodingOptions)}
    # Other Whispers' options may be passed as None: they are left out.
    wanted = {name: value for name, value in wanted.items() if value is not None or name in known}
    if unknown := wanted.keys() - known:
        names = ", ".join(sorted({*known, *OTHER_NAMES, "greedy", "temperature_increment_on_fallback"}))
        raise InvalidRequest(f"Unknown option '{min(unknown)}': choose from {names}.")
    options = DecodingOptions(**{**defaults, **wanted})
    thresholds = (options.compression_ratio_threshold, options.logprob_threshold)
    if increment is not None and thresholds == (None, None):
        raise InvalidRequest(
            "No window fails without a threshold: set temperature_increment_on_fallback together with "
            "compression_ratio_threshold or logprob_threshold (OpenAI's are 2.4 and -1)."
        )
    return options


def fallback_temperatures(temperature: float, increment: float | None) -> tuple[float, ...]:
    """Return the temperatures that openai/whisper tries: from one up to 1 in steps; without a step only one.

    Raise :class:`InvalidRequest` for a step below the smallest temperature, and for too many steps.
    """
    if increment is None:
        return (temperature,)
    for name, value in (("temperature", temperature), ("temperature_increment_on_fallback", increment)):
        value = within_floats(value) if is_number(value) else value
        if not (is_number(value) and math.isfinite(value)):
            raise InvalidRequest(f"{name} is {value!r}: it must be a number.")
    if increment < MIN_TEMPERATURE:
        raise InvalidRequest(
            f"temperature_increment_on_fallback is {increment:g}: "
            f"it must be at least {MIN_TEMPERATURE:g}, or left out."
        )
    num_steps = max(0.0, (1.0 + 1e-6 - temperature) / increment)
    if num_steps >= MAX_TEMPERATURES:
        raise InvalidRequest(
            f"Steps of {increment:g} make more than {MAX_TEMPERATURES} temperatures: set a larger step."
        )
    return tuple(round(temperature + i * increment, 6) for i in range(math.floor(num_steps) + 1))
