"""What a target server can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.serving import ServingOptions
from specwhisper.types import CROSS_CACHES, DTYPES, Limits

DEFAULT_PORT = 50_052
DEFAULT_IDLE_S = 30.0  # draft servers give signs of life


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Settings of a target server, checked when they are made.

    Attributes
    ----------
    model : bundled name, Whisper size, hub id or folder.
    dtype : numeric type of the weights; the identical-text promise is for float32.
    threads : CPU threads of one forward pass; ``None`` leaves it to torch.
    cores : the only ones the process runs on; ``None`` for all.
    max_width : most candidates of one session in one pass.
    max_num_batched_tokens : most tokens of all sessions in one pass; what is over waits for the next.
    latency_budget_ms : sessions are refused when answers would take longer than this on average.
    device_map : accelerate's map from decoder module to device, for models larger than one device.
    cross_cache : of :data:`specwhisper.types.CROSS_CACHES`, to keep what is heard in a byte a number.
    """

    model: str = "demo-target"
    revision: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    max_width: int = 16
    max_num_batched_tokens: int = 256
    latency_budget_ms: float | None = None
    device_map: dict[str, int | str] | None = None
    offload_folder: str | None = None
    cross_cache: str | None = None
    limits: Limits = field(default_factory=Limits)
    serving: ServingOptions = field(
        default_factory=lambda: ServingOptions(port=DEFAULT_PORT, idle_timeout_s=DEFAULT_IDLE_S)
    )

    @property
    def is_on_gpu(self) -> bool:
        """Whether the model runs on a CUDA device."""
        return self.device.partition(":")[0] == "cuda"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidRequest(f"--dtype is '{self.dtype}': choose one of {', '.join(DTYPES)}.")
        if self.threads is not None and self.threads < 1:
            raise InvalidRequest(f"--threads is {self.threads}: it must be at least 1.")
        for flag, value in (
            ("--max-width", self.max_width),
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
        ):
            if value < 1:
                raise InvalidRequest(f"{flag} is {value}: it must be at least 1.")
        if self.latency_budget_ms is not None and not self.latency_budget_ms > 0:
            raise InvalidRequest(f"--latency-budget is {self.latency_budget_ms} ms: it must be above 0.")
        if self.cross_cache not in (None, *CROSS_CACHES):
            raise InvalidRequest(
                f"--cross-cache is '{self.cross_cache}': choose one of {', '.join(CROSS_CACHES)}."
            )
        if self.cross_cache is not None and (self.device_map is not None or not self.is_on_gpu):
            raise InvalidRequest("--cross-cache is for a model on one GPU: leave it out.")
