"""What a target server can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from specwhisper.errors import InvalidRequest
from specwhisper.types import DTYPES, Limits
from specwhisper.wire.addresses import check_bind
from specwhisper.wire.serving import ServingOptions

DEFAULT_PORT = 50_052


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Settings of a target server, checked when they are made.

    Attributes
    ----------
    model : bundled name, Whisper size, hub id or folder.
    dtype : numeric type of the weights; the identical-text promise is for float32.
    threads : CPU threads of one forward pass; ``None`` leaves it to torch.
    max_width : most candidates of one session in one pass.
    device_map : accelerate's map from decoder module to device, for models larger than one device.
    """

    model: str = "demo-target"
    revision: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    max_width: int = 16
    device_map: dict[str, int | str] | None = None
    offload_folder: str | None = None
    limits: Limits = field(default_factory=Limits)
    serving: ServingOptions = field(default_factory=lambda: ServingOptions(port=DEFAULT_PORT))

    def __post_init__(self) -> None:
        check_bind(self.serving.host, self.serving.insecure)
        if self.dtype not in DTYPES:
            raise InvalidRequest(f"--dtype is '{self.dtype}': choose one of {', '.join(DTYPES)}.")
        if self.threads is not None and self.threads < 1:
            raise InvalidRequest(f"--threads is {self.threads}: it must be at least 1.")
        if self.max_width < 1:
            raise InvalidRequest(f"--max-width is {self.max_width}: it must be at least 1.")
