"""A lease lets one caller open a session at one target for a limited time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import LeaseRefused
from specwhisper.rpc.tokens import Leases
from tests.clock import Clock


def test_a_lease_is_valid_for_a_time():
    clock = Clock()
    leases = Leases(clock)
    lease = leases.grant("draft-1")
    clock.now_s += 59.9
    leases.check(lease, "draft-1")
    clock.now_s += 0.2
    with pytest.raises(LeaseRefused, match="valid for 60 s"):
        leases.check(lease, "draft-1")


def test_a_lease_is_valid_for_one_caller_at_one_target():
    leases = Leases()
    lease = leases.grant("draft-1")
    with pytest.raises(LeaseRefused, match="ask Locate"):
        leases.check(lease, "draft-2")
    with pytest.raises(LeaseRefused, match="ask Locate"):
        Leases().check(lease, "draft-1")


@given(st.text(), st.text())
def test_other_strings_are_refused(lease, caller):
    with pytest.raises(LeaseRefused):
        Leases().check(lease, caller)


@given(st.integers(0, 63), st.integers(1, 15))
def test_a_changed_lease_is_refused(place, change):
    leases = Leases()
    until_ms, signature = leases.grant("draft-1").split(".")
    other = f"{int(signature[place], 16) ^ change:x}"
    with pytest.raises(LeaseRefused):
        leases.check(f"{until_ms}.{signature[:place]}{other}{signature[place + 1 :]}", "draft-1")
    with pytest.raises(LeaseRefused):
        leases.check(f"{int(until_ms) + change}.{signature}", "draft-1")
