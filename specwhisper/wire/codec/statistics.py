"""Session statistics to protobuf and back."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from specwhisper.speculation.controller import Choice, Estimates
from specwhisper.speculation.statistics import NOT_TOTALS, SpeculationStatistics
from specwhisper.wire.v1 import transcription_pb2 as pb

# The contract keeps the names it was published with; ours are those of docs/glossary.md.
WIRE_NAMES = {
    "num_forwards": "num_passes",
    "num_align_forwards": "num_align_passes",
    "num_hinted": "num_recalled",
    "num_hinted_accepted": "num_recalled_accepted",
    "num_hinted_forwards": "num_recalled_passes",
}
WIRE_ESTIMATES = {"forward_ns": "pass_ns", "forward_token_ns": "pass_token_ns"}
TOTALS = tuple(field.name for field in fields(SpeculationStatistics) if field.name not in NOT_TOTALS)


def statistics_to_proto(statistics: SpeculationStatistics) -> pb.SpeculationStatistics:
    """Encode the counts, and the inputs of the draft length if they are known."""
    counts: dict[str, Any] = {WIRE_NAMES.get(name, name): getattr(statistics, name) for name in TOTALS}
    message = pb.SpeculationStatistics(**counts)
    if (choice := statistics.choice) is not None:
        message.control.MergeFrom(
            pb.DraftControl(
                gamma=choice.gamma,
                max_ahead=choice.max_ahead,
                reason=choice.reason,
                min_confidence=choice.min_confidence,
            )
        )
    if (estimates := statistics.estimates) is not None:
        values: dict[str, Any] = {WIRE_ESTIMATES.get(name, name): v for name, v in asdict(estimates).items()}
        message.control.MergeFrom(pb.DraftControl(**values))
    return message


def statistics_from_proto(message: pb.SpeculationStatistics) -> SpeculationStatistics:
    """Decode the counts; the inverse of :func:`statistics_to_proto`."""
    values: dict[str, Any] = {name: getattr(message, WIRE_NAMES.get(name, name)) for name in TOTALS}
    values["acceptance_histogram"] = list(message.acceptance_histogram)
    if message.HasField("control"):
        control = message.control
        values["choice"] = Choice(control.gamma, control.max_ahead, control.reason, control.min_confidence)
        if control.survival:
            estimates: dict[str, Any] = {
                field.name: getattr(control, WIRE_ESTIMATES.get(field.name, field.name))
                for field in fields(Estimates)
            }
            values["estimates"] = Estimates(**estimates | {"survival": tuple(control.survival)})
    return SpeculationStatistics(**values)
