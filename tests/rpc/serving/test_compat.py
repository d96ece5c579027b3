"""grpcio has the private and undocumented parts that this project uses."""

from __future__ import annotations

import grpc

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
