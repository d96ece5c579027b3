"""Every session takes part soon, within the token limit of a forward pass."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.batching import Part, Request, next_batch

requests = st.lists(
    st.builds(
        Request,
        num_needed=st.integers(1, 230),
        num_candidates=st.integers(0, 16),
        num_missed=st.integers(0, 5),
    ),
    min_size=1,
    max_size=12,
)


def chosen(*requests: Request, max_tokens: int = 100) -> list[Part]:
    return next_batch(requests, max_tokens)


def test_all_sessions_take_part_if_there_is_room():
    parts = chosen(Request(1, 5), Request(4, 0), Request(1, 16))
    assert parts == [Part(0, 5), Part(1, 0), Part(2, 16)]


def test_candidates_beyond_the_limit_are_left_out():
    assert chosen(Request(1, 16), Request(1, 16), max_tokens=20) == [Part(0, 16), Part(1, 2)]


def test_a_session_that_missed_a_forward_pass_has_priority():
    parts = chosen(Request(1, 16), Request(1, 16, num_missed=1), max_tokens=17)
    assert parts == [Part(1, 16)]


def test_a_long_prompt_alone_may_exceed_the_limit():
    assert chosen(Request(228, 3), max_tokens=100) == [Part(0, 0)]
    assert chosen(Request(1, 3), Request(228, 3), max_tokens=100) == [Part(0, 3)]


@given(requests, st.integers(1, 300))
def test_a_forward_pass_is_never_empty_or_too_long(requests, max_tokens):
    parts = next_batch(requests, max_tokens)
    assert parts
    assert [part.index for part in parts] == sorted({part.index for part in parts})
    assert all(part.num_candidates <= requests[part.index].num_candidates for part in parts)
    num_tokens = sum(requests[part.index].num_needed + part.num_candidates for part in parts)
    assert num_tokens <= max_tokens or len(parts) == 1


@given(requests, st.integers(1, 300))
def test_no_session_waits_forever(requests, max_tokens):
    """A session misses a forward pass only for one that has missed at least as many."""
    waiting = [replace(request, num_missed=0) for request in requests]
    unserved, rounds = set(range(len(waiting))), 0
    while unserved:
        served = {part.index for part in next_batch(waiting, max_tokens)}
        unserved -= served
        waiting = [
            replace(request, num_missed=0 if i in served else request.num_missed + 1)
            for i, request in enumerate(waiting)
        ]
        rounds += 1
        assert rounds <= len(waiting) + 1
