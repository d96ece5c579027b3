"""Audio formats, transcript chunks, descriptions, requests and addresses."""

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wyoming.asr import Transcribe
from wyoming.audio import AudioChunk, AudioChunkConverter
from wyoming.event import Event

from specwhisper.errors import InvalidAudio, InvalidRequest, SpecWhisperError, UnsafeBind
from specwhisper.options import DecodingOptions, Padding
from specwhisper.settings.command_line import config_from
from specwhisper_wyoming.config import WyomingConfig, read_uri
from specwhisper_wyoming.connection import options_of
from specwhisper_wyoming.utterance import PcmFormat, To16Bit, read_format
from tests.unit.wyoming.test_wyoming_events import JSON


@given(st.sampled_from([1, 2, 4]), st.binary(max_size=64), st.lists(st.integers(0, 64)))
def test_samples_of_any_width_become_the_packages_16_bit_samples_however_they_are_cut(width, data, cuts):
    data = data[: len(data) - len(data) % width]
    expected = AudioChunkConverter(width=2).convert(AudioChunk(16_000, width, 1, data)).audio
    bounds = [0, *sorted(cuts), len(data)]
    converter = To16Bit(width)
    pieces = [converter.push(data[a:b]) for a, b in pairwise(bounds)]
    assert b"".join(pieces) == expected


def test_of_24_bits_the_upper_16_are_kept():
    samples = np.array([-32768, -1, 0, 1, 32767], "<i2")
    wide = b"".join(b"\x7f" + sample.tobytes() for sample in samples)
    assert To16Bit(3).push(wide) == samples.tobytes()


def test_a_format_is_read_and_others_are_refused():
    good = {"rate": 16_000, "width": 2, "channels": 1}
    assert read_format(good) == PcmFormat(16_000, 2, 1)
    for bad in ({"rate": "16000"}, {"width": True}, {"width": 5}, {"width": 0}, {"channels": None}):
        with pytest.raises(InvalidAudio):
            read_format(good | bad)


REQUEST_FIELDS = "name language context vad_sensitivity transcript_names transcript_terms".split()


@given(st.dictionaries(st.sampled_from(["rate", "width", "channels", *REQUEST_FIELDS]), JSON))
def test_no_value_of_a_field_is_a_bug(data):
    for read in (read_format, lambda data: options_of(Event("transcribe", data), DecodingOptions())):
        with suppress(SpecWhisperError):
            read(data)


def test_a_request_names_language_and_words():
    request = Transcribe(name="any", language="en-US", transcript_names=["Ada"], transcript_terms=["lamp"])
    options = options_of(request.event(), DecodingOptions())
    assert (options.language, options.hotwords) == ("en", "Ada, lamp")
    assert options_of(Transcribe().event(), DecodingOptions()) == DecodingOptions()


@pytest.mark.parametrize(
    "data",
    [{"language": 1}, {"transcript_names": "Ada"}, {"transcript_terms": [1]}, {"transcript_names": {}}],
)
def test_a_request_of_other_types_is_refused(data):
    with pytest.raises(InvalidRequest):
        options_of(Event("transcribe", data), DecodingOptions())


@pytest.mark.parametrize(
    ("uri", "where"),
    [
        ("tcp://127.0.0.1:10300", ("127.0.0.1", 10300, "")),
        ("tcp://[::1]:0", ("::1", 0, "")),
        ("unix:///run/specwhisper.sock", (None, None, "/run/specwhisper.sock")),
        ("stdio://", (None, None, "")),
    ],
)
def test_addresses_are_written_as_wyomings_programs_write_them(uri, where):
    address = read_uri(uri)
    assert (address.hostname, address.port, address.path) == where


@pytest.mark.parametrize(
    "uri",
    ["", "tcp://", "tcp://host", "tcp://host:x", "tcp://host:99999", "tcp://[::1:5", "unix://", "http://a:1"],
)
def test_other_addresses_are_refused(uri):
    with pytest.raises(InvalidRequest, match="--uri"):
        config_from(WyomingConfig, {"uri": uri})


def test_a_public_address_needs_permission_and_an_announcement_a_public_address():
    with pytest.raises(UnsafeBind, match="--insecure"):
        config_from(WyomingConfig, {"uri": "tcp://0.0.0.0:10300"})
    flags = {"uri": "tcp://0.0.0.0:10300", "insecure": True, "zeroconf": "kitchen"}
    assert config_from(WyomingConfig, flags).zeroconf == "kitchen"
    with pytest.raises(InvalidRequest, match="--zeroconf"):
        config_from(WyomingConfig, {"zeroconf": "kitchen"})
    with pytest.raises(InvalidRequest, match="--zeroconf is ' ': write a name"):
        config_from(WyomingConfig, flags | {"zeroconf": " "})


def test_decoding_options_are_checked_before_the_server_listens():
    config = config_from(WyomingConfig, {"languages": "en,French", "padding": "zero"})
    assert (config.options.languages, config.options.padding) == (("en", "fr"), Padding.ZERO)
    with pytest.raises(InvalidRequest, match="languages"):
        config_from(WyomingConfig, {"languages": "français"})
    with pytest.raises(InvalidRequest, match="--padding is 'bogus': choose from silence, zero"):
        config_from(WyomingConfig, {"padding": "bogus"})
