"""Sessions are limited per caller and in total."""

from contextlib import ExitStack

import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.session_limiter import SEEN_S, SessionLimiter
from tests.clock import Clock


def test_limits_per_caller_and_in_total():
    limiter = SessionLimiter("The server", max_sessions=3, max_per_caller=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(limiter.admit("anna"))
        with pytest.raises(ServerFull, match="The server holds 2 sessions of 'anna'"):
            limiter.check("anna")
        stack.enter_context(limiter.admit("ben"))
        for name in ("anna", "ben", "cleo"):
            with pytest.raises(ServerFull, match="The server holds its 3 sessions already"):
                with limiter.admit(name):
                    pass
        assert limiter.num_sessions == 3
    assert limiter.num_sessions == 0
    limiter.check("anna")


def test_a_failed_session_no_longer_counts():
    limiter = SessionLimiter("The server", max_sessions=1)
    with pytest.raises(ZeroDivisionError):
        with limiter.admit(""):
            raise ZeroDivisionError
    limiter.check("")


@pytest.mark.parametrize(("num", "most"), [(1, 1), (2, 1), (8, 7), (9, 7), (16, 14)])
def test_by_default_no_caller_has_all_sessions_where_others_were_lately(num, most):
    clock = Clock()
    limiter = SessionLimiter("The server", num, clock=clock)

    def holds() -> int:
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(limiter.admit("anna"))
                except ServerFull:
                    return limiter.num_sessions

    assert holds() == num, "a single caller has all"
    limiter.check("ben")
    limiter.check("cleo")
    assert holds() == most
    with ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(limiter.admit("anna"))
        if num > 1:
            with pytest.raises(ServerFull, match=rf"{most} sessions of 'anna'.*\(--max-sessions-per-token\)"):
                limiter.check("anna")
            limiter.check("ben")
    clock.now_s += SEEN_S + 1
    assert holds() == num
