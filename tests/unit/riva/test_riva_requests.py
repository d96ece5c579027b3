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


def test_what_is_asked_for_becomes_options():
    contexts = [riva_asr_pb2.SpeechContext(phrases=["Clara", "soup"], boost=20), {"phrases": ["Vienna"]}]
    custom = {"mode": "sync", "gamma": "7", "task": "translate", "apply_partial_itn": "true"}
    custom |= {"languages": "en,French", "channel": "left", "audio_track": "2", "container_times": "False"}
    config = options_of(language_code="multi", speech_contexts=contexts, custom_configuration=custom)
    found = recognition_config(config)
    assert (codec.mode_from_proto(found.mode), found.gamma) == (Mode.SYNC, 7)
    assert found.decoding.task == decoding_pb2.TASK_TRANSLATE
    assert found.decoding.hotwords == "Clara, soup, Vienna"
    assert found.decoding.languages == ["en", "fr"]
    assert (found.channel, found.audio_track, found.container_times) == ("left", 2, False)
    plain = recognition_config(options_of())
    assert (plain.mode, plain.gamma) == (decoding_pb2.MODE_UNSPECIFIED, 0)
    with pytest.raises(InvalidRequest, match="languages"):
        recognition_config(options_of(language_code="de", custom_configuration=custom))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"enable_separate_recognition_per_channel": True}, "mixed to one"),
        ({"sample_rate_hertz": 0}, "sample_rate_hertz is 0"),
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


def test_windows_and_shares_become_lengths_and_unset_ones_are_our_defaults():
    ended = ends(start_history=300, start_threshold=0.2, stop_history=800, stop_threshold=0.98)
    assert (ended.min_speech_ms, ended.silence_duration_ms, ended.short_silence_ms) == (60, 784, 784)
    assert ends(stop_threshold=0.5).silence_duration_ms == 400
    for unset in ({}, {"start_history": -1, "stop_history": -1}, {"stop_history_eou": 900}):
        assert ends(**unset) == EndpointingOptions()
    for settings, sentence in (
        ({"stop_history": 500, "stop_threshold": 1.5}, "stop_threshold is 1.5"),
        ({"stop_history": 10_000_000}, "stop_history is 1e"),
    ):
        with pytest.raises(InvalidRequest, match=sentence):
            ends(**settings)


def test_the_onset_of_the_neural_vad_becomes_the_threshold():
    assert ends({"neural_vad.onset": "0.65"}).threshold == pytest.approx(0.65)
    with pytest.raises(InvalidRequest, match=r"neural_vad\.onset is 'high': it must be a number"):
        ends({"neural_vad.onset": "high"})
