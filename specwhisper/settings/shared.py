"""Settings that several programs have, with the same names and explanations."""

from __future__ import annotations

import math
import re
from typing import Any

from specwhisper.settings.setting import MODEL, SERVING
from specwhisper.types import DTYPES
from specwhisper.validated import ABOVE_0, DEVICE, choice, number, option, text, whole

MAX_CORES = 4096


def revision_option(help: str = "Commit or tag of a model on the hub.", **about: Any) -> Any:
    return text(None, help, "REVISION", **about)


def device_option(
    help: str = "Device of the model: cpu, cuda, cuda:1, mps or auto (the first of cuda, mps and cpu).",
    default: str | None = "cpu",
    **about: Any,
) -> Any:
    return text(default, help, "DEVICE", rules=(DEVICE,), **about)


def dtype_option(help: str, **about: Any) -> Any:
    return choice("float32", help, "TYPE", DTYPES, **about)


def threads_option() -> Any:
    help = "CPU threads of a forward pass; default: as many as cores."
    return whole(None, 1, math.inf, help, panel=MODEL)


def cores_option() -> Any:
    help = "CPU cores the process may use, e.g. 0,1 or 0-3; default: all."
    return option(None, help, "CORES", read=parse_cores, panel=MODEL)


def port_option(default: int) -> Any:
    return whole(default, 0, 65_535, "Port to listen on; 0: any free port.", "PORT", panel=SERVING)


def seconds_option(flag: str, default: float, lowest: float, help: str, panel: str = SERVING) -> Any:
    return number(default, lowest, math.inf, help, "SECONDS", flags=(flag,), panel=panel)


def idle_timeout_option(default: float) -> Any:
    help = "Seconds of inactivity (nothing sent, or responses unread) after which a stream is closed."
    return seconds_option("idle-timeout", default, ABOVE_0, help)


def drain_timeout_option() -> Any:
    return seconds_option("drain-timeout", 30.0, 0, "Seconds that open sessions may continue after SIGTERM.")


def parse_cores(cores: Any) -> tuple[int, ...]:
    if isinstance(cores, tuple):
        return cores
    found: list[int] = []
    for part in cores.split(","):
        if not re.fullmatch(r"\d+(-\d+)?", part):
            raise ValueError("write numbers and ranges, such as 0,2 or 0-3")
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if not begin <= end < MAX_CORES:
            raise ValueError(f"'{part}' is not a range of cores below {MAX_CORES}")
        found += range(begin, end + 1)
    return tuple(found)
