"""Pinning, and samples as the experiments load them."""

import os

import pytest

from experiments.common.servers.processes import CAN_PIN, available_cores, on_cores


@pytest.mark.skipif(not CAN_PIN, reason="this system does not pin processes")
def test_pinning_ends_with_its_block():
    before = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), on_cores([available_cores()[-1]]):
        assert os.sched_getaffinity(0) == {available_cores()[-1]}
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before
