"""Concatenated deltas of a streamed transcript are its text, however it was cut."""

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.types import Segment
from specwhisper_client.deltas import Deltas

texts = st.lists(st.lists(st.text(alphabet=" \nab.", max_size=6), max_size=3), max_size=6)


@given(texts)
def test_concatenated_deltas_are_the_text(updates):
    deltas = Deltas()
    added = [deltas.add([Segment(0.0, 1.0, (), text) for text in update]) for update in updates]
    assert not any(retracted for retracted, _ in added)
    assert "".join(delta for _, delta in added) == deltas.sent
    assert deltas.sent == "".join(text for update in updates for text in update).strip()
    assert not any(delta.isspace() for _, delta in added)


letters = st.text(alphabet=" ab", max_size=6)


@given(st.lists(st.tuples(letters, letters), max_size=6))
def test_settled_text_that_changes_is_taken_back(updates):
    deltas, shown, final = Deltas(), "", ""
    for text, settled in updates:
        final += text
        retracted, delta = deltas.add([Segment(0.0, 1.0, (), text)], settled)
        assert shown.endswith(retracted)
        assert not (retracted and delta and retracted[0] == delta[0]), "no more than what changed"
        shown = shown[: len(shown) - len(retracted)] + delta
        assert shown == deltas.sent == (final + settled).strip()
