"""Ports of replicas: a fixed one, a free one (0), or one of a range.

Of a range, each replica on a node takes one.
"""

from __future__ import annotations

import re

from specwhisper.errors import InvalidRequest

Flags = dict[str, str | int | float | bool | list[str] | None]

PORT_FLAGS = ("port", "metrics-port")
RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")


def port_choices(flags: Flags) -> list[Flags]:
    """Return a replica's flags once for each port that it may take, in order.

    ``{"port": "50051-50054"}`` has four choices. Two ranges are paired: the first port of one with the first
    port of the other.

    Raises
    ------
    InvalidRequest
        where a range is empty or malformed, or the other port is fixed or a range of another length.
    """
    ranges = {
        name: _parse_range(name, value)
        for name in PORT_FLAGS
        if isinstance(value := flags.get(name), str) and not value.isdecimal()
    }
    if not ranges:
        return [dict(flags)]
    num_ports = {len(ports) for ports in ranges.values()}
    for name in PORT_FLAGS:
        if name not in ranges and int(str(flags.get(name) or 0)):
            num_ports.add(1)
    if len(num_ports) > 1:
        given = ", ".join(f"{name}: {flags[name]}" for name in PORT_FLAGS if flags.get(name))
        raise InvalidRequest(
            f"Each replica takes one port of both: write ranges of equal length, or 0 ({given})."
        )
    return [
        {**flags, **dict(zip(ranges, ports, strict=True))} for ports in zip(*ranges.values(), strict=True)
    ]


def _parse_range(name: str, value: str) -> range:
    found = RANGE.fullmatch(value.strip())
    first, last = (int(port) for port in found.groups()) if found else (0, 0)
    if not 0 < first <= last < 65_536:
        raise InvalidRequest(
            f"{name} is '{value}': write a port, 0 for a free one, or a range such as 50051-50054."
        )
    return range(first, last + 1)
