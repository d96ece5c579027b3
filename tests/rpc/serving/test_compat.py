"""grpcio has the private and undocumented parts that this project uses."""

from __future__ import annotations

import grpc
import pytest

from specwhisper.rpc import compat
from specwhisper.rpc.channels import open_channel
from specwhisper.wire.v1 import verification_pb2_grpc


def test_grpcio_has_the_tested_release():
    """Run ``test_streams.py`` with a new release, then name it in ``compat.py``."""
    assert grpc.__version__.rpartition(".")[0] == compat.GRPCIO


async def test_a_call_has_the_core_object_that_is_wrapped():
    async with open_channel("127.0.0.1:1") as channel:
        call = verification_pb2_grpc.VerificationStub(channel).Verify()
        compat.filter_internal_errors(call, lambda _: False)
        call.cancel()
        assert callable(call._cython_call._core.set_internal_error)


class CoreCall:
    """A call that is its own core object, and records internal errors."""

    def __init__(self) -> None:
        self._cython_call = self
        self.internal_errors: list[str] = []

    def set_internal_error(self, details: str) -> None:
        self.internal_errors.append(details)


@pytest.mark.parametrize("is_reported", [True, False])
def test_internal_errors_are_filtered(is_reported):
    call = CoreCall()
    compat.filter_internal_errors(call, lambda _: is_reported)
    call._cython_call.set_internal_error("details")
    assert call.internal_errors == ["details"] * is_reported
