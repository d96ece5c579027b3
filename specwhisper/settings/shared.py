"""Settings that several programs have, with the same names and explanations."""

from __future__ import annotations

import re
from typing import Annotated

from specwhisper.errors import InvalidRequest
from specwhisper.settings.setting import MODEL, SERVING, Made, Setting

MAX_CORES = 4096

Revision = Annotated[str | None, Setting(MODEL, "Commit or tag of a model on the hub.", metavar="REVISION")]
Device = Annotated[
    str,
    Setting(
        MODEL,
        "Device of the model: cpu, cuda, cuda:1, mps or auto (the first of cuda, mps and cpu).",
        metavar="DEVICE",
    ),
]
Threads = Annotated[
    int | None,
    Setting(MODEL, "CPU threads of a forward pass; default: as many as cores.", metavar="N", min=1),
]
Port = Annotated[
    int, Setting(SERVING, "Port to listen on; 0: any free port.", metavar="PORT", min=0, max=65_535)
]
IdleTimeoutFlag = Annotated[
    float,
    Setting(
        SERVING,
        "Seconds until a stream ends whose caller sends nothing, or does not read the answers.",
        metavar="SECONDS",
        above=0,
    ),
]
DrainTimeout = Annotated[
    float,
    Setting(SERVING, "Seconds that open sessions may continue after SIGTERM.", metavar="SECONDS", min=0),
]


def parse_cores(
    cores: Annotated[
        str | None,
        Setting(MODEL, "CPU cores the process may use, e.g. 0,1 or 0-3; default: all.", metavar="CORES"),
    ] = None,
) -> tuple[int, ...] | None:
    """Read a list of cores and ranges of cores."""
    if cores is None:
        return None
    found: list[int] = []
    for part in cores.split(","):
        if not re.fullmatch(r"\d+(-\d+)?", part):
            raise InvalidRequest(f"--cores is '{cores}': write numbers and ranges, such as 0,2 or 0-3.")
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if not begin <= end < MAX_CORES:
            raise InvalidRequest(f"--cores is '{cores}': '{part}' is not a range of cores below {MAX_CORES}.")
        found += range(begin, end + 1)
    return tuple(found)


Cores = Annotated[tuple[int, ...] | None, Made(parse_cores)]
