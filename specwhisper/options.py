"""What a caller may ask of a transcription, with the meaning openai/whisper and transformers give it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from numbers import Real
from types import MappingProxyType
from typing import Any

from specwhisper.errors import InvalidRequest, UnsupportedOption, within_floats
from specwhisper.live import LiveOptions

NO_BEAMS = (
    "Beam search is not offered: a beam reorders its past at every token, which no draft can foresee; "
    "leave beam_size at 1, or sample with a temperature."
)
MAX_SEED = 2**63 - 1
MAX_TEMPERATURES = 16
# Logits are divided by a temperature in float32: much below, they overflow; much above, it does.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6


class Task(StrEnum):
    """What Whisper does with the speech."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class CompressionRatio(StrEnum):
    """What is compressed to tell a text that repeats itself."""

    TOKENS = "tokens"  # the bytes of the token ids, as transformers does; its advice is a threshold of 1.35
    TEXT = "text"  # the text, as openai/whisper does; its threshold is 2.4


# What openai/whisper takes for silence, a loop or a guess unless it is told otherwise.
OPENAI_THRESHOLDS: Mapping[str, Any] = MappingProxyType(
    {
        "compression_ratio_threshold": 2.4,
        "compression_ratio_of": CompressionRatio.TEXT,
        "logprob_threshold": -1.0,
        "no_speech_threshold": 0.6,
    }
)


class Acceptance(StrEnum):
    """Which candidates are kept."""

    EXACT = "exact"  # those the target would have written: the text is its own, token for token
    # By the rule of speculative sampling (arXiv 2211.17192): the text is distributed as the target's own, but
    # depends on what was proposed. At temperature 0 it is the same as exact.
    CLASSICAL = "classical"


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """What the caller asks of the target; the same options and audio give the same text in every mode.

    Only ``acceptance`` and ``acceptance_threshold`` can make the text depend on the draft. ``None`` leaves an
    option out; choices may be given as plain strings, and a single temperature as a number.

    Attributes
    ----------
    language : Whisper language code; ``None`` takes the one that a fine-tune names in its generation config,
        or detects it in the first 30 s. English-only checkpoints take "en" and ``None``.
    timestamps : whether segments carry times; without them a window always advances by 30 s.
    word_timestamps : whether words carry times; takes one more forward pass per window.
    max_new_tokens : limit on generated tokens per window; ``None`` is the model's own limit.
    max_initial_timestamp_s : latest time at which a window's first segment may begin; ``None`` is the
        model's own.
    temperatures : sampling temperatures, tried in order until a window is good enough by the thresholds; 0 is
        greedy.
    top_k, top_p : sample among the ``top_k`` likeliest tokens (transformers: 50 unless told), and among the
        likeliest that together have probability ``top_p``; 0 and 1 are all. They have no effect at
        temperature 0.
    seed : of the noise that sampling adds.
    acceptance : which candidates are kept when sampling.
    acceptance_threshold : keep a candidate also where the target would have written something else but gives
        it at least this probability. Faster, and *lossy*: the text is no longer the target's own.
    compression_ratio_threshold : a window that compresses better than this failed.
    compression_ratio_of : what is compressed: the tokens, as transformers does, or the text, as
        openai/whisper does. The command line, whose options are openai's, has text unless told.
    logprob_threshold : a window whose mean log-probability (natural, end-of-text included) is below failed.
    no_speech_threshold : a window that is silence with more than this probability is skipped, unless there is
        a ``logprob_threshold`` and it is sure enough by that.
    condition_on_previous_text : whether a window is prompted with the text before it.
    initial_prompt : text the first window is prompted with; every window, where none is prompted with the
        text before it.
    carry_initial_prompt : whether it stays in front of the previous text.
    hotwords : words that stay in front of every prompt.
    log_mel_max : largest log10 mel power of the whole recording by number of mel bins, when it is known
        beforehand (a file). Features are clamped relative to it, as transformers does; without it the
        loudest moment heard so far takes its place.
    live : how live audio is decoded; ``None`` for recordings, whose windows follow Whisper's own rules.
    """

    language: str | None = None
    task: Task = Task.TRANSCRIBE
    timestamps: bool = True
    word_timestamps: bool = False
    max_new_tokens: int | None = None
    max_initial_timestamp_s: float | None = None
    temperatures: tuple[float, ...] = (0.0,)
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    acceptance: Acceptance = Acceptance.EXACT
    acceptance_threshold: float | None = None
    compression_ratio_threshold: float | None = None
    compression_ratio_of: CompressionRatio = CompressionRatio.TOKENS
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    condition_on_previous_text: bool = False
    initial_prompt: str = ""
    carry_initial_prompt: bool = False
    hotwords: str = ""
    log_mel_max: Mapping[int, float] = field(default_factory=dict)
    live: LiveOptions | None = None

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is None and option.default is not MISSING:
                value = option.default
            if value is None and option.default_factory is not MISSING:
                value = option.default_factory()
            object.__setattr__(self, option.name, _read(option.name, str(option.type), value))
        for is_wrong, name, rule in self._rules():
            if is_wrong:
                raise InvalidRequest(f"{name} is {getattr(self, name)}: {rule}.")

    @property
    def is_lossy(self) -> bool:
        """Whether the text may differ from the target's own."""
        return self.acceptance_threshold is not None

    def _rules(self) -> tuple[tuple[bool, str, str], ...]:
        """Give what could be wrong: whether it is, the option, and what it must be."""
        temperatures, ratio = self.temperatures, self.compression_ratio_threshold
        logprob, no_speech = self.logprob_threshold, self.no_speech_threshold
        initial_s, threshold = self.max_initial_timestamp_s, self.acceptance_threshold
        return (
            (
                self.max_new_tokens is not None and self.max_new_tokens < 1,
                "max_new_tokens",
                "it must be at least 1, or left out",
            ),
            (
                initial_s is not None and not 0 <= initial_s <= 30,
                "max_initial_timestamp_s",
                "it must lie between 0 and 30 seconds, or be left out",
            ),
            (
                not temperatures
                or not all(t == 0 or MIN_TEMPERATURE <= t <= MAX_TEMPERATURE for t in temperatures),
                "temperatures",
                f"name at least one, each 0 or from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}",
            ),
            (
                list(temperatures) != sorted(set(temperatures)),
                "temperatures",
                "each must be higher than the one before it",
            ),
            (len(temperatures) > MAX_TEMPERATURES, "temperatures", f"at most {MAX_TEMPERATURES} are tried"),
            (not 0 <= self.top_k < 2**31, "top_k", "it must be 0 for all tokens, or their number"),
            (not 0 < self.top_p <= 1, "top_p", "it must be above 0 and at most 1"),
            (
                threshold is not None and not 0 < threshold <= 1,
                "acceptance_threshold",
                "it must be a probability above 0; leave it out for the target's own text",
            ),
            (
                threshold is not None and self.acceptance is Acceptance.CLASSICAL,
                "acceptance_threshold",
                "it contradicts classical acceptance: choose one of them",
            ),
            (not 0 <= self.seed <= MAX_SEED, "seed", f"it must lie between 0 and {MAX_SEED}"),
            (
                ratio is not None and not (math.isfinite(ratio) and ratio > 0),
                "compression_ratio_threshold",
                "it must be above 0, or left out",
            ),
            (
                logprob is not None and not (math.isfinite(logprob) and logprob <= 0),
                "logprob_threshold",
                "a log-probability is 0 or less; leave it out for no threshold",
            ),
            (
                no_speech is not None and not 0 <= no_speech <= 1,
                "no_speech_threshold",
                "it must be a probability, or left out",
            ),
            (
                self.carry_initial_prompt and not self.initial_prompt.strip(),
                "carry_initial_prompt",
                "there is no initial_prompt to carry",
            ),
        )


CHOICES: dict[str, type[StrEnum]] = {kind.__name__: kind for kind in (Task, Acceptance, CompressionRatio)}


def _read(name: str, kind: str, value: Any) -> Any:
    """Take an option's value as its field has it; ``kind`` is the field's annotation."""
    if value is None:
        return None
    kind = kind.removesuffix(" | None")
    if kind in CHOICES:
        try:
            return CHOICES[kind](value)
        except ValueError:
            raise InvalidRequest(f"{name} is '{value}': choose from {', '.join(CHOICES[kind])}.") from None
    if kind == "tuple[float, ...]":
        values = value if isinstance(value, Iterable) else (value,)
        if isinstance(values, str) or not all(_is_number(v) for v in values):
            raise InvalidRequest(f"{name} is {value!r}: it must be a number, or several.")
        return tuple(float(within_floats(v)) for v in values)
    value = within_floats(value) if _is_number(value) else value
    is_right = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": _is_number(value) and math.isfinite(value) and int(value) == value,
        "float": _is_number(value),
    }
    if not is_right.get(kind, True):
        wanted = {"str": "text", "bool": "True or False", "int": "a whole number", "float": "a number"}
        raise InvalidRequest(f"{name} is {value!r}: it must be {wanted[kind]}.")
    return {"int": int, "float": float}[kind](value) if kind in ("int", "float") else value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # numpy's numbers are Real too


def options_from(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> DecodingOptions:
    """Read options as keywords, as users of other Whispers write them; ``given`` override ``defaults``.

    A given ``None`` overrides a default too, with the option's own. ``temperature`` is one of them, or
    several; ``beam_size`` and ``num_beams`` may say that it is one beam.
    """
    wanted = dict(given)
    for name in ("beam_size", "num_beams"):
        if wanted.pop(name, None) not in (None, 1):
            raise UnsupportedOption(NO_BEAMS)
    if "temperature" in wanted:
        temperature = wanted.pop("temperature")
        if wanted.get("temperatures") is None:
            wanted["temperatures"] = temperature
        elif temperature is not None:
            raise InvalidRequest("Both temperature and temperatures are given: leave one out.")
    known = {option.name for option in fields(DecodingOptions)}
    # Other Whispers' options may be passed as None: they are left out.
    wanted = {name: value for name, value in wanted.items() if value is not None or name in known}
    if unknown := wanted.keys() - known:
        raise InvalidRequest(f"There is no option '{min(unknown)}'; there are {', '.join(sorted(known))}.")
    return DecodingOptions(**{**defaults, **wanted})


def fallback_temperatures(temperature: float, increment: float | None) -> tuple[float, ...]:
    """Return the temperatures that openai/whisper tries: from one up to 1 in steps.

    Parameters
    ----------
    increment : a step; ``None`` for one temperature alone.

    Raises
    ------
    InvalidRequest : for a step below the smallest temperature, too many steps, or what is not a number.
    """
    if increment is None:
        return (temperature,)
    for name, value in (("temperature", temperature), ("temperature_increment_on_fallback", increment)):
        value = within_floats(value) if _is_number(value) else value
        if not (_is_number(value) and math.isfinite(value)):
            raise InvalidRequest(f"{name} is {value!r}: it must be a number.")
    if increment < MIN_TEMPERATURE:
        raise InvalidRequest(
            f"temperature_increment_on_fallback is {increment:g}: "
            f"it must be at least {MIN_TEMPERATURE:g}, or left out."
        )
    num_steps = max(0.0, (1.0 + 1e-6 - temperature) / increment)
    if num_steps >= MAX_TEMPERATURES:
        raise InvalidRequest(
            f"Steps of {increment:g} give more than {MAX_TEMPERATURES} temperatures: name a larger step."
        )
    return tuple(round(temperature + i * increment, 6) for i in range(math.floor(num_steps) + 1))
