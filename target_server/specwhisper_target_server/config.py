"""Settings of a target server."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.serving_options import SHORT_CALLS, ServingOptions
from specwhisper.settings.setting import MODEL, SERVING, Made, Setting
from specwhisper.settings.shared import Cores, Device, IdleTimeoutFlag, Port, Revision, Threads
from specwhisper.testing.loading import load_failpoints
from specwhisper.types import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DTYPES,
    GPU_MAX_NUM_BATCHED_TOKENS,
    DeviceMap,
    Limits,
    default_num_batched_tokens,
)

DEFAULT_PORT = 50_052
DEFAULT_IDLE_S = 30.0  # draft servers send heartbeats


def session_limits(
    max_sessions: Annotated[
        int, Setting(SERVING, "Concurrent sessions; each takes a slot of memory.", metavar="N", min=1)
    ] = 8,
) -> Limits:
    return Limits(max_sessions=max_sessions)


def read_device_map(
    device_map: Annotated[
        Path | None,
        Setting(
            MODEL,
            '"auto", or a JSON file that maps modules to devices, e.g. {{"encoder": 0, "decoder": 1}}.',
            metavar="FILE",
        ),
    ] = None,
) -> DeviceMap | None:
    if device_map is None:
        return None
    if str(device_map) == "auto":
        return "auto"
    try:
        devices = json.loads(device_map.read_text())
    except OSError as error:
        raise InvalidRequest(f"--device-map {device_map} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidRequest(f"--device-map {device_map} is not JSON: {error}.") from error
    if not (isinstance(devices, dict) and all(isinstance(value, int | str) for value in devices.values())):
        raise InvalidRequest(
            f'--device-map {device_map} must hold an object such as {{"encoder": 0, "decoder": 1}}.'
        )
    return devices


def target_failpoints() -> Any:
    return load_failpoints(os.environ, "target")


@dataclass(frozen=True, kw_only=True)
class TargetConfig(ServingOptions):
    """Settings of ``specwhisper-target-server``.

    Attributes
    ----------
    device_map : accelerate's map from module to device, or "auto", for models larger than one device.
    """

    model: Annotated[
        str,
        Setting(
            MODEL,
            "Target model: demo-target, a Whisper size (large-v3, turbo ...), a hub id, a folder or a file.",
            metavar="MODEL",
        ),
    ] = "demo-target"
    revision: Revision = None
    device: Device = "cpu"
    dtype: Annotated[
        str,
        Setting(
            MODEL,
            "Numeric type of the weights: float32 (text identical to transformers); on a CPU with VNNI int8; "
            "with PyTorch (the extra server) bfloat16 or float16.",
            metavar="TYPE",
            choices=DTYPES,
        ),
    ] = "float32"
    max_width: Annotated[
        int,
        Setting(
            MODEL,
            "Most draft tokens of one session in one forward pass; a hint may add up to 64.",
            metavar="N",
            min=1,
        ),
    ] = 16
    threads: Threads = None
    cores: Cores = None
    device_map: Annotated[DeviceMap | None, Made(read_device_map)] = None
    offload_folder: Annotated[
        Path | None,
        Setting(MODEL, 'Folder for "disk" entries of the device map.', metavar="FOLDER", is_folder=True),
    ] = None
    self_test: Annotated[
        bool,
        Setting(
            MODEL,
            "Compare the GPU kernels with PyTorch on the device, print a table and exit; 1 if any differs.",
        ),
    ] = False

    port: Port = DEFAULT_PORT
    limits: Annotated[Limits, Made(session_limits)] = field(default_factory=session_limits)
    idle_timeout_s: IdleTimeoutFlag = DEFAULT_IDLE_S
    max_num_batched_tokens: Annotated[
        int | None,
        Setting(
            SERVING,
            f"Most tokens of all sessions in one forward pass; the others wait for the next one. By default "
            f"{DEFAULT_MAX_NUM_BATCHED_TOKENS}, and {GPU_MAX_NUM_BATCHED_TOKENS} on a GPU.",
            metavar="N",
            min=1,
        ),
    ] = None
    latency_budget_ms: Annotated[
        float | None,
        Setting(
            SERVING,
            "Mean response time in milliseconds above which sessions are refused; default: none.",
            metavar="MS",
            above=0,
        ),
    ] = None
    standby: Annotated[
        bool,
        Setting(
            SERVING,
            "A loaded spare, which takes no session until a draft server has lost one of its targets.",
        ),
    ] = False
    failpoints: Annotated[Any, Made(target_failpoints)] = None

    @property
    def num_batched_tokens(self) -> int:
        return self.max_num_batched_tokens or default_num_batched_tokens(self.device, self.device_map)

    @property
    def max_concurrent_streams(self) -> int:
        """Limit of concurrent calls on one connection, which all sessions of a draft server share."""
        return self.limits.max_sessions + 1 + SHORT_CALLS
