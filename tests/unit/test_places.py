"""Places are counted by caller, and in all."""

from contextlib import ExitStack

import pytest

from specwhisper.errors import ServerFull
from specwhisper.rpc.places import Places


def test_places_of_one_caller_and_of_all():
    places = Places("The server", max_sessions=3, max_per_caller=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(places.taken("anna"))
        with pytest.raises(ServerFull, match="The server holds 2 sessions of 'anna'"):
            places.check("anna")
        stack.enter_context(places.taken("ben"))
        for name in ("anna", "ben", "cleo"):
            with pytest.raises(ServerFull, match="The server holds its 3 sessions already"):
                with places.taken(name):
                    pass
        assert places.num_taken == 3
    assert places.num_taken == 0
    places.check("anna")


def test_a_place_comes_back_whatever_happens():
    places = Places("The server", max_sessions=1)
    with pytest.raises(ZeroDivisionError):
        with places.taken(""):
            raise ZeroDivisionError
    places.check("")
