"""Parsers of untrusted bytes on random input, without guidance by coverage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.parsers import PARSERS, parse
from tests.fuzz.running import fuzzed


@st.composite
def changed(draw: st.DrawFn, seed: bytes) -> bytes:
    """Draw bytes that differ a little from valid ones."""
    data = bytearray(seed)
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=6)):
        data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)) | st.just(len(data)))])


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_valid_input(name):
    parser, seeds = PARSERS[name]
    for seed in seeds:
        parser(seed)


@pytest.mark.parametrize("name", PARSERS)
@fuzzed(60, print_blob=True)
@given(data=st.data())
def test_a_parser_of_any_bytes_raises_only_declared_errors(name, data):
    seed = data.draw(st.integers(0, len(PARSERS[name][1]) - 1))
    parse(name, data.draw(changed(PARSERS[name][1][seed]) | st.binary(max_size=64)))
