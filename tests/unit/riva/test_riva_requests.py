"""Requests of Riva's clients become our options."""

import pytest
from riva.client.proto import riva_asr_pb2

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper.wire import codec
from specwhisper.wire.v1 import decoding_pb2
from specwhisper_riva.requests import endpointing, recognition_config, whole_config

LIVE = LiveOptions()


def options_of(**settings) -> riva_asr_pb2.RecognitionConfig:
    return riva_asr_pb2.RecognitionConfig(**settings)


def ends(custom=None, **settings) -> EndpointingOptions:
    config = options_of(
        endpointing_config=riva_asr_pb2.EndpointingConfig(**settings), custom_configuration=custom or {}
    )
    return codec.endpointing_from_proto(endpointing(config))


def test_live_audio_has_the_options_of_our_own_client():
    options = codec.decoding_options_from_proto(recognition_config(options_of(), LIVE).decoding)
    assert options == DecodingOptions(live=LIVE)
    assert recognition_config(options_of()).decoding.HasField("live") is False


@pytest.mark.parametrize(("code", "ours"), [("en-US", ["en"]), ("multi", []), ("", [])])
def test_language(code, ours):
    assert recognition_config(options_of(language_code=code)).decoding.languages == ours


def test_phrases_of_all_contexts_are_hotwords():
    contexts = [
        riva_asr_pb2.SpeechContext(phrases=["Clara", "tomato soup"], boost=20),
        {"phrases": ["Vienna"]},
    ]
    assert recognition_config(options_of(speech_contexts=contexts)).decoding.hotwords == (
        "Clara, tomato soup, Vienna"
    )


def test_custom_configuration():
    custom = {"mode": "sync", "gamma": "7", "task": "translate", "apply_partial_itn": "true"}
    config = recognition_config(options_of(custom_configuration=custom))
    assert codec.mode_from_proto(config.mode) is Mode.SYNC
    assert config.gamma == 7
    assert config.decoding.task == decoding_pb2.TASK_TRANSLATE
    plain = recognition_config(options_of())
    assert (plain.mode, plain.gamma) == (decoding_pb2.MODE_UNSPECIFIED, 0)


def test_languages_are_those_that_may_be_spoken():
    custom = {"languages": "en,French"}
    config = options_of(language_code="multi", custom_configuration=custom)
    assert recognition_config(config).decoding.languages == ["en", "fr"]
    with pytest.raises(InvalidRequest, match="languages"):
        recognition_config(options_of(language_code="de", custom_configuration=custom))


def test_custom_configuration_selects_what_is_decoded():
    custom = {"channel": "left", "audio_track": "2", "container_times": "False"}
    config = recognition_config(options_of(custom_configuration=custom))
    assert (config.channel, config.audio_track, config.container_times) == ("left", 2, False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"enable_separate_recognition_per_channel": True}, "mixed to one"),
        ({"sample_rate_hertz": 0}, "sample_rate_hertz is 0"),
        ({"audio_channel_count": -1}, "audio_channel_count is -1"),
        ({"encoding": 7}, "encoding 7 is unknown"),
        *(
            ({"custom_configuration": {name: value}}, f"^{name} is ")
            for name, value in (
                *(("mode", "fast"), ("gamma", "many"), ("gamma", "1e9"), ("task", "sing")),
                *(("audio_track", "inf"), ("audio_track", "0"), ("channel", "up")),
            )
        ),
    ],
)
def test_unsupported_settings_are_named(settings, sentence):
    settings = {"encoding": "LINEAR_PCM", "sample_rate_hertz": 16_000} | settings
    request = riva_asr_pb2.RecognizeRequest(config=options_of(**settings), audio=bytes(2))
    with pytest.raises((InvalidRequest, UnsupportedOption), match=sentence):
        whole_config(request)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"stop_history": 500, "stop_threshold": 1.5}, "stop_threshold is 1.5"),
        ({"stop_history": 10_000_000}, "stop_history is 1e"),
    ],
)
def test_windows_and_shares_have_bounds(settings, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        ends(**settings)


@pytest.mark.parametrize("settings", [{}, dict.fromkeys(("start_history", "stop_history"), -1)])
def test_unset_values_are_our_defaults(settings):
    assert ends(**settings) == EndpointingOptions()


def test_windows_and_shares_become_lengths():
    ended = ends(start_history=300, start_threshold=0.2, stop_history=800, stop_threshold=0.98)
    assert (ended.min_speech_ms, ended.silence_duration_ms, ended.short_silence_ms) == (60, 784, 784)
    assert ends(stop_threshold=0.5).silence_duration_ms == 400
    assert ends(stop_history_eou=900) == EndpointingOptions()


def test_the_onset_of_the_neural_vad_becomes_the_threshold():
    ended = ends({"enable_vad_endpointing": "true", "neural_vad.onset": "0.65"})
    assert ended.threshold == pytest.approx(0.65)
