"""Invalid options are refused in one clear sentence."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.live import LiveOptions
from specwhisper.options import CompressionRatio, DecodingOptions, Task, fallback_temperatures, options_from
from specwhisper.selection import VadOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0: it must be at least 1"),
        ({"max_initial_timestamp_s": 31.0}, "must lie between 0 and 30 seconds"),
        ({"temperatures": ()}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (1e-45,)}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (1e39,)}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (0.4, 0.4)}, "each must be higher than the one before it"),
        ({"temperatures": tuple(i / 10 for i in range(17))}, "at most 16 are tried"),
        ({"top_k": -1}, "top_k is -1"),
        ({"hallucination_silence_threshold": 2.0}, "needs times of words: add word_timestamps"),
        (
            {"hallucination_silence_threshold": -1.0, "word_timestamps": True},
            "it must be at least 0 seconds, or left out",
        ),
        ({"top_p": 0.0}, "must be above 0 and at most 1"),
        ({"seed": -1}, "seed is -1"),
        ({"acceptance_threshold": 0.0}, "must be a probability above 0"),
        ({"compression_ratio_threshold": 0.0}, "must be above 0"),
        ({"logprob_threshold": 0.5}, "a log-probability is 0 or less"),
        ({"no_speech_threshold": 1.5}, "must be a probability"),
        ({"carry_initial_prompt": True}, "there is no initial_prompt to carry"),
        ({"language": 5}, "language is 5: it must be text"),
        ({"initial_prompt": ["a"]}, "initial_prompt is .*: it must be text"),
        ({"initial_prompt": "a \ud800"}, "initial_prompt is .*: it must be valid Unicode"),
        ({"hotwords": ["a", 3]}, "hotwords is .*: it must be text, or a list of texts"),
        ({"hotwords": "\udfff"}, "hotwords is .*: it must be valid Unicode"),
        ({"timestamps": "no"}, "timestamps is 'no': it must be True or False"),
        ({"top_k": 2.5}, "top_k is 2.5: it must be a whole number"),
        ({"top_p": "half"}, "top_p is 'half': it must be a number"),
        ({"temperatures": "hot"}, "temperatures is 'hot': it must be a number, or several"),
        ({"task": "rubbish"}, "task is 'rubbish': choose from transcribe, translate"),
        ({"multilingual": True, "language": "en"}, "language and multilingual exclude each other: leave"),
        ({"multilingual": True, "languages": "en,fr"}, "languages and multilingual exclude each other"),
        ({"multilingual": True, "live": LiveOptions()}, "leave it out of live audio, which detects the"),
    ],
)
def test_invalid_values_are_refused(options: dict, message: str):
    with pytest.raises(InvalidRequest, match=message):
        DecodingOptions(**options)


@pytest.mark.parametrize(
    "number", [10**400, -(10**400), Fraction(10**400), math.nan], ids=["high", "low", "fraction", "nan"]
)
@pytest.mark.parametrize(
    "name",
    (
        "max_new_tokens max_initial_timestamp_s temperatures top_k top_p seed acceptance_threshold "
        "compression_ratio_threshold logprob_threshold no_speech_threshold"
    ).split(),
)
def test_what_is_no_finite_number_is_refused(name, number):
    for value in (number, (0.0, number)) if name == "temperatures" else (number,):
        with pytest.raises(InvalidRequest, match=rf"{name} is .*(inf|nan)"):
            DecodingOptions(**{name: value})


@pytest.mark.parametrize(
    ("temperature", "increment", "expected"),
    [
        (0.0, None, (0.0,)),
        (0.0, 0.2, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.5, 0.3, (0.5, 0.8)),
        (1.0, 0.2, (1.0,)),
        (1.5, 0.2, (1.5,)),
        (1e308, 1e-6, (1e308,)),  # a temperature that DecodingOptions refuses
    ],
)
def test_fallback_temperatures_end_at_1(temperature, increment, expected):
    assert fallback_temperatures(temperature, increment) == expected


@pytest.mark.parametrize(
    ("temperature", "increment", "problem"),
    [
        *(
            (temperature, increment, f"{name} is .*: it must be a number")
            for number in (10**400, -(10**400), math.nan, math.inf, "0", True)
            for temperature, increment, name in (
                (number, 0.2, "temperature"),
                (0.0, number, "temperature_increment_on_fallback"),
            )
        ),
        *(
            (temperature, increment, "_increment_on_fallback is .*: it must be at least 1e-06, or")
            for temperature in (0.0, 1.5)
            for increment in (0, -0.2, 5e-324)
        ),
        *(
            (0.0, increment, "Steps of .* make more than 16 temperatures: set a")
            for increment in (0.01, 1e-6)
        ),
    ],
)
def test_temperatures_and_steps_that_cannot_be(temperature, increment, problem):
    with pytest.raises(InvalidRequest, match=problem):
        fallback_temperatures(temperature, increment)


def test_none_leaves_an_option_at_its_default_and_is_no_threshold():
    nothing = dict.fromkeys(("initial_prompt", "hotwords", "temperatures", "top_k", "top_p", "seed", "task"))
    assert DecodingOptions(**nothing) == DecodingOptions()
    thresholds = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
    without = DecodingOptions(**dict.fromkeys(thresholds))
    assert without == replace(DecodingOptions.greedy(), temperatures=DecodingOptions().temperatures)


def test_a_single_temperature_and_choices_as_plain_text_are_accepted():
    assert DecodingOptions(temperatures=0.2).temperatures == (0.2,)
    assert DecodingOptions(temperatures=[0, 1]).temperatures == (0.0, 1.0)
    options = DecodingOptions(task="translate", compression_ratio_of="text")
    assert (options.task, options.compression_ratio_of) == (Task.TRANSLATE, CompressionRatio.TEXT)


DEFAULTS = DecodingOptions(language="en", top_k=3)
FALLBACK = {"temperature": 0.5, "temperature_increment_on_fallback": 0.3}
greedy = DecodingOptions.greedy


@pytest.mark.parametrize(
    ("defaults", "given", "expected"),
    [
        ({"temperatures": (0.5,), "top_k": 3}, {"top_k": 4}, DecodingOptions(temperatures=(0.5,), top_k=4)),
        ({"temperatures": (0.5,)}, {"temperature": 0.1}, DecodingOptions(temperatures=(0.1,))),
        ({}, {"temperature": (0, 0.2)}, DecodingOptions(temperatures=(0.0, 0.2))),
        (DEFAULTS, {}, DEFAULTS),
        (DEFAULTS, {"top_k": None}, DecodingOptions(language="en")),
        # Names of other programs.
        ({}, {"max_initial_timestamp": 1.0}, DecodingOptions(max_initial_timestamp_s=1.0)),
        ({}, {"without_timestamps": True}, DecodingOptions(timestamps=False)),
        ({}, {"without_timestamps": False}, DecodingOptions()),
        ({}, {"k": 5, "log_prob_threshold": -1}, DecodingOptions(top_k=5, logprob_threshold=-1)),
        ({}, dict.fromkeys(("max_initial_timestamp", "without_timestamps", "greedy")), DecodingOptions()),
        ({}, {"max_tokens": 200}, DecodingOptions(max_new_tokens=200)),
        ({}, {"max_tokens": 200, "max_new_tokens": 200}, DecodingOptions(max_new_tokens=200)),
        ({}, {"beam_size": 1, "num_beams": None}, DecodingOptions()),
        # Greedy leaves out fallback and thresholds that are not given.
        ({"temperatures": 0.7}, {"greedy": True}, greedy()),
        ({}, {"greedy": False}, DecodingOptions()),
        ({}, {"greedy": True, "logprob_threshold": -0.5}, greedy(logprob_threshold=-0.5)),
        ({}, {"greedy": True, "temperature": 0.2}, greedy(temperatures=0.2)),
        ({}, FALLBACK, DecodingOptions(temperatures=(0.5, 0.8))),
        (
            {"temperatures": 0.4},
            {"temperature_increment_on_fallback": None},
            DecodingOptions(temperatures=0.4),
        ),
    ],
)
def test_keywords_as_users_of_other_programs_write_them(defaults, given, expected):
    assert options_from(defaults, given) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"temperature": 0.1, "temperatures": (0.2,)}, "Both temperature and temperatures"),
        ({"without_timestamps": True, "timestamps": True}, "Both without_timestamps and timestamps"),
        ({"max_tokens": 2, "max_new_tokens": 1}, "Both max_tokens and max_new_tokens are set, and differ"),
        ({**FALLBACK, "greedy": True}, "No window fails without a threshold"),
        ({"logprob_threshold": 1}, "logprob_threshold is 1: .* or None for no threshold"),
        ({"beam_size": 5}, "Beam search is not offered"),
    ],
)
def test_keywords_that_cannot_be(given, problem):
    with pytest.raises((InvalidRequest, UnsupportedOption), match=problem):
        options_from({}, given)


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(InvalidRequest, match="Unknown option 'langage': choose from ") as error:
        options_from({}, {"langage": "en"})
    named = str(error.value).partition("choose from ")[2].rstrip(".").split(", ")
    assert {"language", "temperature", "temperature_increment_on_fallback"} <= set(named)


def test_an_error_shows_the_beginning_of_a_long_value():
    with pytest.raises(InvalidRequest, match=r"hint is 'aaaa.*at most 200000 bytes") as refused:
        DecodingOptions(hint="a" * 200_001)
    assert len(str(refused.value)) < 400


def test_vad_has_faster_whispers_parameters_and_defaults():
    assert DecodingOptions().vad is None
    assert DecodingOptions(vad_filter=True).vad == VadOptions()
    options = options_from({}, {"vad_filter": True, "vad_parameters": {"speech_pad_ms": 30}})
    assert options.vad == options.vad_parameters == VadOptions(speech_pad_ms=30)
    theirs = pytest.importorskip("faster_whisper.vad", exc_type=ImportError).VadOptions()
    assert vars(theirs) == {name: getattr(VadOptions(), name) for name in VadOptions.__slots__}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"threshold": 1.5}, "threshold is 1.5: it must lie between 0 and 1."),
        ({"threshold": float("nan")}, "threshold is nan: it must lie between 0 and 1."),
        ({"speech_pad_ms": 0.5}, "speech_pad_ms is 0.5: it must be a whole number."),
        ({"max_speech_duration_s": 0.5}, "max_speech_duration_s is 0.5: it must be above 0.832, twice"),
        ({"neg_threshold": 0.6}, "neg_threshold is 0.6: it must be at most threshold, which is 0.5."),
        ({"onset": 0.6}, "unknown option 'onset': choose from threshold, neg_threshold"),
        ("lots", "vad_parameters is 'lots': it must be VadOptions, or a dict of them."),
    ],
)
def test_parameters_of_vad_that_cannot_be(parameters, reason):
    with pytest.raises(InvalidRequest, match=re.escape(reason)):
        options_from({}, {"vad_filter": True, "vad_parameters": parameters})
