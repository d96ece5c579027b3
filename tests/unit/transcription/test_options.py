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
        ({"temperatures": (-0.1,)}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (1e-45,)}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (1e39,)}, "name at least one, each 0 or from 1e-06 to 1e"),
        ({"temperatures": (0.4, 0.2)}, "each must be higher than the one before it"),
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
        ({"hint": "a \ud800"}, "hint is .*: it must be valid Unicode"),
        ({"hotwords": ["a", 3]}, "hotwords is .*: it must be text, or a list of texts"),
        ({"hotwords": "\udfff"}, "hotwords is .*: it must be valid Unicode"),
        ({"timestamps": "no"}, "timestamps is 'no': it must be True or False"),
        ({"top_k": 2.5}, "top_k is 2.5: it must be a whole number"),
        ({"seed": "seven"}, "seed is 'seven': it must be a whole number"),
        ({"top_p": "half"}, "top_p is 'half': it must be a number"),
        ({"temperatures": "hot"}, "temperatures is 'hot': it must be a number, or several"),
        ({"temperatures": ("hot",)}, "it must be a number, or several"),
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


def test_none_leaves_an_option_at_its_default():
    nothing = dict.fromkeys(("initial_prompt", "hotwords", "temperatures", "top_k", "top_p", "seed", "task"))
    assert DecodingOptions(**nothing) == DecodingOptions()


def test_none_is_no_threshold():
    thresholds = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
    without = DecodingOptions(**dict.fromkeys(thresholds))
    assert without == replace(DecodingOptions.greedy(), temperatures=DecodingOptions().temperatures)
    with pytest.raises(InvalidRequest, match=r"logprob_threshold is 1: .* or None for no threshold"):
        DecodingOptions(logprob_threshold=1)


def test_a_single_temperature_is_accepted():
    assert DecodingOptions(temperatures=0.2).temperatures == (0.2,)
    assert DecodingOptions(temperatures=[0, 1]).temperatures == (0.0, 1.0)


class TestKeywords:
    """As users of other Whisper programs write them."""

    def test_given_options_override_the_defaults(self):
        defaults = {"temperatures": (0.5,), "top_k": 3}
        assert options_from(defaults, {"top_k": 4}) == DecodingOptions(temperatures=(0.5,), top_k=4)
        assert options_from(defaults, {"temperature": 0.1}).temperatures == (0.1,)
        assert options_from({}, {"temperature": (0, 0.2)}).temperatures == (0.0, 0.2)

    def test_temperature_and_temperatures_conflict(self):
        with pytest.raises(InvalidRequest, match="Both temperature and temperatures"):
            options_from({}, {"temperature": 0.1, "temperatures": (0.2,)})

    def test_an_unknown_option_is_refused_with_the_known_ones(self):
        with pytest.raises(InvalidRequest, match="There is no option 'langage'; there are ") as error:
            options_from({}, {"langage": "en"})
        named = str(error.value).partition("there are ")[2].rstrip(".").split(", ")
        assert {"language", "temperature", "temperature_increment_on_fallback"} <= set(named)

    def test_defaults_may_be_options(self):
        defaults = DecodingOptions(language="en", top_k=3)
        assert options_from(defaults, {}) == defaults
        assert options_from(defaults, {"top_k": None}) == DecodingOptions(language="en")

    def test_names_of_other_programs_are_accepted(self):
        given = {"max_initial_timestamp": 1.0, "without_timestamps": True, "temperature": 0.2}
        more = {"k": 5, "log_prob_threshold": -1}
        assert options_from({}, given | more) == DecodingOptions(
            max_initial_timestamp_s=1.0, timestamps=False, temperatures=0.2, top_k=5, logprob_threshold=-1
        )
        assert options_from({}, dict.fromkeys(given)) == DecodingOptions()
        assert options_from({}, {"without_timestamps": False}).timestamps

    def test_two_names_of_one_option_conflict(self):
        with pytest.raises(InvalidRequest, match="Both without_timestamps and timestamps"):
            options_from({}, {"without_timestamps": True, "timestamps": True})

    def test_max_tokens_is_max_new_tokens(self):
        assert options_from({}, {"max_tokens": 200}) == DecodingOptions(max_new_tokens=200)
        same = options_from({}, {"max_tokens": 200, "max_new_tokens": 200})
        assert same == DecodingOptions(max_new_tokens=200)
        with pytest.raises(InvalidRequest, match="Both max_tokens and max_new_tokens are set, and differ"):
            options_from({}, {"max_tokens": 200, "max_new_tokens": 100})

    def test_greedy_leaves_out_fallback_and_thresholds_that_are_not_given(self):
        assert options_from({"temperatures": 0.7}, {"greedy": True}) == DecodingOptions.greedy()
        assert options_from({}, {"greedy": False}) == options_from({}, {"greedy": None}) == DecodingOptions()
        given = {"greedy": True, "logprob_threshold": -0.5, "temperature": 0.2}
        assert options_from({}, given) == DecodingOptions.greedy(logprob_threshold=-0.5, temperatures=0.2)

    def test_fallback_needs_a_threshold(self):
        given = {"temperature": 0.5, "temperature_increment_on_fallback": 0.3}
        with pytest.raises(InvalidRequest, match="No window fails without a threshold"):
            options_from({}, given | {"greedy": True})
        assert options_from({}, given).temperatures == (0.5, 0.8)
        assert options_from(
            {"temperatures": 0.4}, {"temperature_increment_on_fallback": None}
        ).temperatures == (0.4,)

    @pytest.mark.parametrize("name", ["beam_size", "num_beams"])
    def test_only_one_beam_is_accepted(self, name):
        assert options_from({}, {name: 1}) == options_from({}, {name: None}) == DecodingOptions()
        with pytest.raises(UnsupportedOption, match="Beam search is not offered"):
            options_from({}, {name: 5})


def test_choices_may_be_plain_strings():
    options = DecodingOptions(task="translate", compression_ratio_of="text")
    assert options.task is Task.TRANSLATE
    assert options.compression_ratio_of is CompressionRatio.TEXT
    with pytest.raises(InvalidRequest, match="task is 'rubbish': choose from transcribe, translate"):
        DecodingOptions(task="rubbish")


def test_an_error_shows_the_beginning_of_a_long_value():
    with pytest.raises(InvalidRequest, match=r"hint is 'aaaa.*at most 200000 bytes") as refused:
        DecodingOptions(hint="a" * 200_001)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"language": "en"}, "language and multilingual exclude each other: leave one out"),
        ({"languages": "en,fr"}, "languages and multilingual exclude each other: leave one out"),
        ({"live": LiveOptions()}, "leave it out of live audio, which detects the language"),
    ],
)
def test_what_contradicts_several_languages(options, reason):
    with pytest.raises(InvalidRequest, match=reason):
        DecodingOptions(multilingual=True, **options)


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
        ({"onset": 0.6}, "there is no 'onset'; there are threshold, neg_threshold"),
        ("lots", "vad_parameters is 'lots': it must be VadOptions, or a dict of them."),
    ],
)
def test_parameters_of_vad_that_cannot_be(parameters, reason):
    with pytest.raises(InvalidRequest, match=re.escape(reason)):
        options_from({}, {"vad_filter": True, "vad_parameters": parameters})
