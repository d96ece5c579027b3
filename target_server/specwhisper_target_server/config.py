"""Settings of a target server."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.failpoints import Failpoints, read_failpoints
from specwhisper.rpc.serving_options import SHORT_CALLS, ServingOptions
from specwhisper.settings.setting import MODEL, SERVING, part
from specwhisper.settings.shared import (
    cores_option,
    device_option,
    dtype_option,
    idle_timeout_option,
    port_option,
    revision_option,
    threads_option,
)
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    GPU_MAX_NUM_BATCHED_TOKENS,
    DeviceMap,
    Limits,
    default_num_batched_tokens,
)
from specwhisper.validated import ABOVE_0, Rule, number, option, switch, text, whole

DEFAULT_PORT = 50_052
DEFAULT_IDLE_S = 30.0  # draft servers send heartbeats


def read_device_map(device_map: Any) -> DeviceMap:
    """Read accelerate's map from modules to devices: "auto", or a JSON file."""
    if device_map == "auto" or isinstance(device_map, dict):
        return device_map  # type: ignore[no-any-return]
    try:
        devices = json.loads(Path(device_map).read_text())
    except OSError as error:
        raise InvalidRequest(f"{device_map} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidRequest(f"{device_map} is not JSON: {error}.") from error
    if not (isinstance(devices, dict) and all(isinstance(value, int | str) for value in devices.values())):
        raise InvalidRequest(f'{device_map} must hold an object such as {{"encoder": 0, "decoder": 1}}.')
    return devices


@dataclass(frozen=True, kw_only=True)
class LimitFlags:
    max_sessions: int = whole(
        8, 1, math.inf, "Concurrent sessions; each takes a slot of memory.", panel=SERVING
    )

    def limits(self) -> Limits:
        return Limits(max_sessions=self.max_sessions)


@dataclass(frozen=True, kw_only=True)
class TargetConfig(ServingOptions):
    """Settings of ``specwhisper-target-server``."""

    model: str = text(
        "demo-target",
        "Target model: demo-target, a Whisper size (large-v3, turbo ...), a hub id, a folder or a file.",
        "MODEL",
        panel=MODEL,
    )
    revision: str | None = revision_option(panel=MODEL)
    device: str = device_option(panel=MODEL)
    dtype: str = dtype_option(
        "Numeric type of the weights: float32 (text identical to transformers); on a CPU with VNNI int8; "
        "with PyTorch (the extra server) bfloat16 or float16.",
        panel=MODEL,
    )
    max_width: int = whole(
        16,
        1,
        math.inf,
        "Most draft tokens of one session in one forward pass; a hint may add up to 64.",
        panel=MODEL,
    )
    threads: int | None = threads_option()
    cores: tuple[int, ...] | None = cores_option()
    device_map: DeviceMap | None = option(  # for models larger than one device
        None,
        '"auto", or a JSON file that maps modules to devices, e.g. {"encoder": 0, "decoder": 1}.',
        "FILE",
        read=read_device_map,
        panel=MODEL,
    )
    offload_folder: Path | None = option(
        None,
        'Folder for "disk" entries of the device map.',
        "FOLDER",
        rules=(Rule(lambda path: not Path(path).is_file(), "it must be a folder"),),
        needs=("device_map",),
        panel=MODEL,
    )
    self_test: bool = switch(
        False,
        "Compare the GPU kernels with PyTorch on the device, print a table and exit; 1 unless all agree.",
        panel=MODEL,
    )

    port: int = port_option(DEFAULT_PORT)
    limits: Limits = part(LimitFlags, Limits(max_sessions=8), then=LimitFlags.limits)
    idle_timeout_s: float = idle_timeout_option(DEFAULT_IDLE_S)
    max_num_batched_tokens: int | None = whole(
        None,
        1,
        math.inf,
        "Most tokens of all sessions in one forward pass; the others wait for the next one. By default "
        f"{DEFAULT_MAX_NUM_BATCHED_TOKENS}, and {GPU_MAX_NUM_BATCHED_TOKENS} on a GPU.",
        panel=SERVING,
    )
    latency_budget_ms: float | None = number(
        None,
        ABOVE_0,
        math.inf,
        "Mean response time in milliseconds above which sessions are refused; default: none.",
        "MS",
        flags=("latency-budget",),
        panel=SERVING,
    )
    standby: bool = switch(
        False,
        "Wait as a loaded spare that takes no session until a draft server has lost one of its targets.",
        panel=SERVING,
    )
    failpoints: Failpoints | None = field(default_factory=partial(read_failpoints, os.environ, "target"))

    @property
    def num_batched_tokens(self) -> int:
        return self.max_num_batched_tokens or default_num_batched_tokens(self.device, self.device_map)

    @property
    def max_concurrent_streams(self) -> int:
        """Limit of concurrent calls on one connection, which all sessions of a draft server share."""
        return self.limits.max_sessions + 1 + SHORT_CALLS
