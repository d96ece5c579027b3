"""A buffer of pieces is as one array of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.audio.recording import WHOLE_BYTES, Pieces

SIZES = st.one_of(st.integers(0, 5), st.integers(WHOLE_BYTES - 2, WHOLE_BYTES + 2))
ACTIONS = st.lists(st.tuples(st.sampled_from(["append", "drop", "read"]), SIZES, SIZES), max_size=20)


@given(ACTIONS)
def test_pieces_are_as_one_array(actions):
    pieces, array, next_byte = Pieces(), bytearray(), 0
    for action, first, second in actions:
        if action == "append":
            piece = bytes((next_byte + i) % 256 for i in range(first))
            next_byte += 7
            pieces.append(piece)
            array += piece
        elif action == "drop":
            pieces.drop(first)
            del array[:first]
        else:
            assert pieces.read(first, second) == bytes(array[first:second])
        assert len(pieces) == len(array)
    assert pieces.read(0, len(array)) == bytes(array)


def test_many_small_pieces_are_put_together():
    pieces = Pieces()
    for _ in range(3 * WHOLE_BYTES):
        pieces.append(b"ab")
    assert len(pieces._pieces) <= 7
