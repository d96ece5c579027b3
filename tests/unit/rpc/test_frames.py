"""The frames of an HTTP/2 connection are found, however its bytes are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from experiments.common.servers.proxy import Frames


def frame(length: int) -> bytes:
    return length.to_bytes(3, "big") + bytes(6) + b"x" * length


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.data())
def test_the_connection_stops_at_the_end_of_a_frame(lengths, data):
    sent = b"".join(map(frame, lengths))
    ends = [sum(9 + length for length in lengths[: count + 1]) for count in range(len(lengths))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    stop = data.draw(st.integers(0, len(cuts)))  # from this piece on, no new frame may begin
    frames, passed = Frames(), 0
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(sent)], strict=True)):
        if number == stop:
            frames.is_last = True
            expected = next(each for each in [0, *ends] if each >= start)
        whole = frames.take(sent[start:end])
        if whole is not None:
            assert number >= stop and start + whole == expected
            return
        passed = end
        assert frames.num_missing == 0 or passed not in [0, *ends]
    assert passed == len(sent)
