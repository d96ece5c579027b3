"""Library, client, command line and gateway have the same options and defaults."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, replace

import pytest

from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.live import EndpointingOptions
from specwhisper.options import OTHER_NAMES, DecodingOptions, Padding, options_from
from specwhisper.selection import VadOptions
from specwhisper_client import StreamingClient, TranscriptionClient, listen
from specwhisper_client.cli import listen_options, transcribe_command
from specwhisper_client.cli.arguments import Endpointing
from specwhisper_gateway.audio.fields import TranslationFields
from specwhisper_gateway.audio.transcription_fields import TranscriptionFields

NAMES = {option.name for option in fields(DecodingOptions)}
NOT_ON_THE_COMMAND_LINE = {
    "log_mel_max",  # measured by the client
    "live",  # --as-live, and the options of listen
    "vad_parameters",  # --vad-threshold and the like
}
OTHER_PROGRAMS = {"beam_size", "greedy", "temperature_increment_on_fallback"}  # read by options_from
# docs/migrating.md lists these with the reason.
OPENAIS_FIELDS = {"prompt": "initial_prompt", "keywords": "hotwords", "languages": "language"}
NO_OPTIONS = {  # of the gateway: they choose a reply, or are about it
    *("model", "response_format", "stream", "interim_results", "include", "chunking_strategy"),
    *("known_speaker_names", "known_speaker_references"),
}
LIBRARY = (SpeculativeWhisper.transcribe, SpeculativeWhisper.transcribe_iter)
CLIENT = (TranscriptionClient.transcribe_file, TranscriptionClient.stream_file, TranscriptionClient.recognize)


def defaults(options) -> dict[str, object]:
    """Return the default of each field of a dataclass."""
    return {each.name: each.default for each in fields(options) if each.default is not MISSING}


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


def test_listen_takes_the_options_of_a_stream():
    assert list(inspect.signature(listen).parameters) == ["audio", "server", "options"]


def test_the_command_line_has_every_decoding_option_with_its_default():
    flags = defaults(transcribe_command.Decoding)
    flags |= defaults(flags.pop("fallback"))
    del flags["given"]  # no option
    assert {name_of(flag) for flag in flags} - OTHER_PROGRAMS == NAMES - NOT_ON_THE_COMMAND_LINE
    assert transcribe_command.Decoding().options() == DecodingOptions()
    assert options_from(DecodingOptions(), flags) == transcribe_command.Decoding().options()


def test_the_command_line_has_every_option_of_vad_with_its_default():
    assert defaults(transcribe_command.Vad) == {
        f"vad_{name}": default for name, default in defaults(VadOptions).items()
    }
    assert transcribe_command.Vad().parameters() is None
    assert transcribe_command.Vad(vad_speech_pad_ms=0).parameters() == VadOptions(speech_pad_ms=0)


def test_the_config_of_the_library_has_the_defaults_of_the_decoding_options():
    config = SpeculativeConfig()
    assert config.decoding.keys() < NAMES
    assert options_from(config.decoding, {}) == DecodingOptions()
    for name, default in defaults(SpeculativeConfig).items():
        if name_of(name) in NAMES:
            assert options_from({}, {name: default}) == DecodingOptions()


@pytest.mark.parametrize(
    ("group", "options"),
    [
        (listen_options.LiveDecoding, DecodingOptions()),
        (Endpointing, EndpointingOptions()),
    ],
)
def test_listen_has_the_names_and_defaults_of_the_client(group, options):
    assert replace(options, **defaults(group)) == options


def test_listens_other_options_are_parameters_of_a_stream():
    parameters = inspect.signature(StreamingClient).parameters
    for name, default in defaults(listen_options.DraftOptions).items():
        assert parameters[name].default == default


@pytest.mark.parametrize("form", [TranscriptionFields, TranslationFields])
def test_the_gateways_fields_are_openais_or_decoding_options(form):
    names = {name_of(OPENAIS_FIELDS.get(name, name)) for name in form.model_fields}
    assert names - NO_OPTIONS - {"timestamp_granularities", "greedy"} <= NAMES
    options = form.read([("model", "whisper-1")]).options()
    assert options == DecodingOptions(task=form.task, padding=Padding.ZERO)
