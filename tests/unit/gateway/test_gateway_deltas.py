"""Concatenated deltas of a streamed transcript are its text, however it was cut."""

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.types import Segment
from specwhisper_gateway.audio.events import Deltas

texts = st.lists(st.lists(st.text(alphabet=" \nab.", max_size=6), max_size=3), max_size=6)


@given(texts)
def test_concatenated_deltas_are_the_text(updates):
    deltas = Deltas()
    pieces = [deltas.add([Segment(0.0, 1.0, (), text) for text in update]) for update in updates]
    assert "".join(pieces) == "".join(text for update in updates for text in update).strip()
    assert not any(piece.isspace() for piece in pieces)
