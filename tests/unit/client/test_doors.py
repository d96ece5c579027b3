"""Library, client, command line and gateway have the same options and defaults."""

import inspect
from dataclasses import fields

import pytest

from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.options import OTHER_NAMES, DecodingOptions, Padding, options_from
from specwhisper.settings.setting import Part
from specwhisper_client import StreamingClient, TranscriptionClient
from specwhisper_client.cli.transcribe_command import TranscribeOptions
from specwhisper_gateway.audio.fields import TranscriptionFields, TranslationFields

NAMES = {option.name for option in fields(DecodingOptions)}
NOT_ON_THE_COMMAND_LINE = {
    "log_mel_max",  # measured by the client
    "live",  # --as-live, and the options of listen
    "vad_parameters",  # --vad-threshold and the like
}
# docs/migrating.md lists these with the reason.
OPENAIS_FIELDS = {"prompt": "initial_prompt", "keywords": "hotwords", "languages": "language"}
NO_OPTIONS = {  # of the gateway: they choose a reply, or are about it
    *("model", "response_format", "stream", "interim_results", "include", "chunking_strategy"),
    *("known_speaker_names", "known_speaker_references"),
}
LIBRARY = (SpeculativeWhisper.transcribe,)  # transcribe_iter hands all on
CLIENT = (TranscriptionClient.transcribe_file, TranscriptionClient.stream_file, TranscriptionClient.recognize)


def name_of(flag: str) -> str:
    """Return the decoding option of a flag or a field."""
    return OTHER_NAMES.get(flag, flag)


@pytest.mark.parametrize("call", [*LIBRARY, *CLIENT, StreamingClient.__init__])
def test_a_call_has_mode_and_draft_length_and_takes_all_decoding_options_by_name(call):
    parameters = inspect.signature(call).parameters
    assert parameters["mode"].default is None
    assert ("gamma" in parameters) == (call is not StreamingClient.__init__), "live audio has none"
    assert list(parameters.values())[-1].kind is inspect.Parameter.VAR_KEYWORD
    assert not NAMES & parameters.keys() - {"live"}, "they are in DecodingOptions only"


def test_the_command_line_has_every_decoding_option_with_its_default():
    flags = {flag.field: flag.default for flag in Part(kind=TranscribeOptions).flags()}
    assert {name_of(name) for name in flags} >= NAMES - NOT_ON_THE_COMMAND_LINE
    for option in fields(DecodingOptions):
        if option.name in flags and option.name != "hint":
            assert flags[option.name] == option.default


def test_the_config_of_the_library_has_the_defaults_of_the_decoding_options():
    config = SpeculativeConfig()
    assert config.decoding.keys() < NAMES
    assert options_from(config.decoding, {}) == DecodingOptions()
    for each in fields(SpeculativeConfig):
        if name_of(each.name) in NAMES:
            assert options_from({}, {each.name: each.default}) == DecodingOptions()


@pytest.mark.parametrize("form", [TranscriptionFields, TranslationFields])
def test_the_gateways_fields_are_openais_or_decoding_options(form):
    names = {name_of(OPENAIS_FIELDS.get(name, name)) for name in (field.name for field in fields(form))}
    assert names - NO_OPTIONS - {"timestamp_granularities", "greedy"} <= NAMES
    options = form.read([("model", "whisper-1")]).options()
    assert options == DecodingOptions(task=form.task, padding=Padding.ZERO)
