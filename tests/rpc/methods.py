"""List every method of every service, from the protobuf descriptors."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from riva.client.proto import riva_asr_pb2

from specwhisper.wire.v1 import transcription_pb2, verification_pb2

OF_ALL = (health_pb2, reflection_pb2)
FILES = {
    "target": (verification_pb2, *OF_ALL),
    "draft": (transcription_pb2, riva_asr_pb2, *OF_ALL),
}


def methods_of(*files) -> dict[str, MethodDescriptor]:
    """Return methods by path."""
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


@contextmanager
def registered_methods() -> Iterator[set[str]]:
    """Yield the paths of all methods that servers register meanwhile."""
    noted: set[str] = set()
    make = grpc.aio.server

    def noting(*args, **options) -> grpc.aio.Server:
        server = make(*args, **options)
        register = server.add_registered_method_handlers

        def note(service: str, handlers: dict[str, grpc.RpcMethodHandler]) -> None:
            noted.update(f"/{service}/{name}" for name in handlers)
            register(service, handlers)

        server.add_registered_method_handlers = note
        return server

    with patch.object(grpc.aio, "server", noting):
        yield noted
