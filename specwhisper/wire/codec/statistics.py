"""Session statistics to protobuf and back."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from specwhisper.speculation.controller import Choice, Estimates
from specwhisper.speculation.statistics import NOT_TOTALS, SpeculationStatistics
from specwhisper.wire.v1 import transcription_pb2 as pb

TOTALS = tuple(field.name for field in fields(SpeculationStatistics) if field.name not in NOT_TOTALS)


def statistics_to_proto(statistics: SpeculationStatistics) -> pb.SpeculationStatistics:
    """Encode the counts, and how far the draft runs ahead if it runs."""
    choice, estimates = statistics.choice, statistics.estimates
    counts: dict[str, Any] = {name: getattr(statistics, name) for name in TOTALS}
    return pb.SpeculationStatistics(
        **counts,
        choice=None if choice is None else pb.Choice(**asdict(choice)),
        estimates=None if estimates is None else pb.Estimates(**asdict(estimates)),
    )


def statistics_from_proto(message: pb.SpeculationStatistics) -> SpeculationStatistics:
    """Decode the counts; the inverse of :func:`statistics_to_proto`."""
    values: dict[str, Any] = {name: getattr(message, name) for name in TOTALS}
    values["acceptance_histogram"] = list(message.acceptance_histogram)
    if message.HasField("choice"):
        values["choice"] = Choice(**_fields(Choice, message.choice))
    if message.HasField("estimates"):
        estimates = _fields(Estimates, message.estimates)
        values["estimates"] = Estimates(**estimates | {"survival": tuple(message.estimates.survival)})
    return SpeculationStatistics(**values)


def _fields(kind: type[Choice | Estimates], message: pb.Choice | pb.Estimates) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in fields(kind)}
