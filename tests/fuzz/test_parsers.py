"""Readers of strangers' bytes, without the guidance that ``python -m tests.fuzz`` has."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parsers import PARSERS, parse
from tests.fuzz.running import examples


@st.composite
def changed(draw: st.DrawFn, seed: bytes) -> bytes:
    """Bytes a little different from good ones."""
    data = bytearray(seed)
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=6)):
        data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)) | st.just(len(data)))])


@pytest.mark.parametrize("name", PARSERS)
def test_a_reader_reads_what_it_is_there_for(name):
    parser, seeds = PARSERS[name]
    for seed in seeds:
        parser(seed)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), print_blob=True)
@given(data=st.data())
def test_a_reader_of_any_bytes_says_what_is_wrong_with_them(name, data):
    seed = data.draw(st.integers(0, len(PARSERS[name][1]) - 1))
    parse(name, data.draw(changed(PARSERS[name][1][seed]) | st.binary(max_size=64)))
