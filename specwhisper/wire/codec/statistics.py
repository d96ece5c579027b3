"""Session statistics to protobuf and back."""

from __future__ import annotations

from dataclasses import asdict, fields

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.wire.v1 import transcription_pb2 as pb


def statistics_to_proto(statistics: SpeculationStatistics) -> pb.SpeculationStatistics:
    return pb.SpeculationStatistics(**asdict(statistics))


def statistics_from_proto(message: pb.SpeculationStatistics) -> SpeculationStatistics:
    """Decode statistics; the inverse of :func:`statistics_to_proto`."""
    values = {field.name: getattr(message, field.name) for field in fields(SpeculationStatistics)}
    values["acceptance_histogram"] = list(message.acceptance_histogram)
    return SpeculationStatistics(**values)
