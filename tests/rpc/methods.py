"""List every method of every service, from the protobuf descriptors."""

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
