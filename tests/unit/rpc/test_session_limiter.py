"""Sessions are limited per caller and in total."""

from contextlib import ExitStack

import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.session_limiter import SessionLimiter


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
