"""Compile a GPU's kernels without a GPU, and write what they take into docs/gpu.md.

Run ``python -m scripts.kernels`` after a kernel has changed; a test compares. Launches are those of whole
forward passes of large-v3's shape, on tensors without memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget

from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.pytorch import decoder as decoders
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.pytorch.kernels import attention, choice, linear
from specwhisper.model.pytorch.kernels.packed_inputs import Following

PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
HEADING = "## What the kernels take"
KERNELS = {
    attention: ("self_attention_kernel", "cross_attention_kernel"),
    linear: ("norm_linear_kernel", "linear_add_kernel"),
    choice: ("best_of_part_kernel", "choose_kernel"),
}
ARCHITECTURES = {80: "A100", 89: "L4, RTX 4090", 90: "H100, H200", 100: "B200"}
MAX_SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227}  # of a program, from the CUDA programming guide
FLOAT8_FROM = 89
LARGE_V3 = ModelSizes(
    vocab_size=51_866,
    d_model=1_280,
    encoder_layers=32,
    encoder_attention_heads=20,
    encoder_ffn_dim=5_120,
    decoder_layers=32,
    decoder_attention_heads=20,
    decoder_ffn_dim=5_120,
    num_mel_bins=128,
    max_source_positions=1_500,
    max_target_positions=448,
    median_filter_width=7,
    activation_function="gelu",
    tie_word_embeddings=True,
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a Triton kernel, or one of torch's operators.

    Attributes
    ----------
    compile : of a kernel; returns the compiled one, within :func:`target`.
    """

    name: str
    case: str = ""
    compile: Callable[[], Any] | None = None


class Launches(TorchDispatchMode):
    """Collects what a forward pass launches, without launching it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Launch] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note an operator that computes; views and new memory launch nothing."""
        name = func.name().removeprefix("aten::")
        if not func.is_view and not name.startswith(("empty", "new_empty", "_unsafe_view", "detach")):
            self.found.append(Launch(name))
        return func(*args, **(kwargs or {}))


class Recorder:
    """Stands in for a kernel: notes its launches."""

    def __init__(self, name: str, kernel: Any, launches: Launches) -> None:
        self._name = name
        self._kernel = kernel
        self._launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """Return what notes one launch."""

        def launch(*args: Any, **kwargs: Any) -> None:
            case = _case(self._name, args, kwargs)
            compile_ = _Compile(self._kernel, grid, args, kwargs)
            self._launches.found.append(Launch(self._name, case, compile_))

        return launch


@dataclass(frozen=True, slots=True)
class _Compile:
    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        return self.kernel.warmup(*self.args, grid=self.grid, **self.kwargs)


def launches(
    widths: Sequence[int],
    *,
    num_layers: int = 1,
    dtype: torch.dtype = torch.float16,
    cross_cache_dtype: str | None = None,
) -> list[Launch]:
    """Return what one forward pass of large-v3's shape launches.

    Parameters
    ----------
    widths : tokens of each session.
    num_layers : layers of the decoder.
    """
    sizes, noted = replace(LARGE_V3, decoder_layers=num_layers), Launches()
    with contextlib.ExitStack() as stack, torch.inference_mode():
        for module, names in KERNELS.items():
            for name in names:
                stack.enter_context(
                    mock.patch.object(module, name, Recorder(name, getattr(module, name), noted))
                )
        for module, check in (
            (decoders, "supports_cache"),
            (attention, "supports_cache"),
            (choice, "supports"),
        ):
            stack.enter_context(mock.patch.object(module, check, return_value=True))
        with torch.device("meta"):
            decoder = CachedDecoder(sizes, len(widths)).to(dtype).eval().requires_grad_(False)
            decoder.allocate(has_static_shapes=True, cross_cache_dtype=cross_cache_dtype)
        passes = decoder.choose(
            range(len(widths)), [[0] * width for width in widths], [Following()] * len(widths)
        )
        with noted:
            for _ in passes:
                pass
    return noted.found


def _case(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return what distinguishes one compiled kernel of a name from the others."""
    types = [str(one.dtype).removeprefix("torch.") for one in args if isinstance(one, torch.Tensor)]
    types = [one for one in dict.fromkeys(types) if one not in ("int32", "bool")]
    sizes = [str(kwargs[size]) for size in ("BLOCK_TOKENS", "BLOCK_OUTPUTS") if size in kwargs]
    gelu = ["GELU"] if kwargs.get("HAS_GELU") else []
    return ", ".join([*types, *([" x ".join(sizes)] if sizes else []), *gelu])


@dataclass(frozen=True, slots=True)
class Resources:
    """A multiprocessor's resources that a program of a compiled kernel takes.

    Attributes
    ----------
    registers : of each thread.
    spilled : bytes of each thread that did not fit into registers.
    shared : bytes of shared memory.
    """

    registers: int
    spilled: int
    shared: int


class _Driver:
    """A GPU that exists for the compiler only."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture

    def get_current_device(self) -> int:
        return self._architecture  # compiled kernels are kept by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._architecture, 32)


@contextlib.contextmanager
def target(architecture: int) -> Iterator[None]:
    """Compile for an architecture meanwhile."""
    with mock.patch.object(triton.runtime.driver, "_active", _Driver(architecture)):
        yield


def resources(compiled: Any) -> Resources:
    """Return what a compiled kernel takes, by NVIDIA's own tool."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        output = subprocess.run(
            [tool, "--dump-resource-usage", cubin.name], capture_output=True, text=True, check=True
        ).stdout
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", output)}
    return Resources(used["REG"], used["STACK"] + used["LOCAL"], compiled.metadata.shared)


def kernels_of_passes(architecture: int) -> dict[tuple[str, str], Launch]:
    """Return every kernel of passes with few and many tokens on an architecture, by name and case."""
    found = [
        launch
        for dtype, sizes in (
            (torch.float16, (1, 5, 16)),
            (torch.float32, (1, 5, 16)),
            (torch.bfloat16, (1, 16)),
        )
        for rows in sizes
        for launch in launches([5] * rows, dtype=dtype)
    ]
    for cache in ("int8", "float8"):
        found += launches([5], cross_cache_dtype=cache)
    return {
        (one.name, one.case): one
        for one in found
        if one.compile is not None and (architecture >= FLOAT8_FROM or "float8_e4m3fn" not in one.case)
    }


def measure(architecture: int) -> dict[tuple[str, str], Resources]:
    """Compile every kernel for an architecture; return what each takes, by name and case."""
    with target(architecture):
        return {
            key: resources(one.compile())
            for key, one in kernels_of_passes(architecture).items()
            if one.compile is not None
        }


def table(measured: dict[int, dict[tuple[str, str], Resources]]) -> str:
    """Return the page's table."""
    names = [f"sm_{one} ({ARCHITECTURES[one]})" for one in measured]
    lines = [f"| Kernel | Case | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for name, case in next(iter(reversed(measured.values()))):
        cells = [_cell(of_one.get((name, case))) for of_one in measured.values()]
        lines.append(f"| `{name}` | {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Resources | None) -> str:
    return "" if found is None else f"{found.registers} / {found.spilled} / {found.shared / 1024:.1f}"


def parse_table(page: str) -> dict[int, dict[tuple[str, str], Resources]]:
    """Return the figures of the page's table, by architecture, name and case."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.split(HEADING)[1].splitlines()
        if line.startswith("|")
    ]
    found: dict[int, dict[tuple[str, str], Resources]] = {}
    for column, title in enumerate(rows[0][2:], start=2):
        architecture = int(title.split("_")[1].split()[0])
        of_one = found.setdefault(architecture, {})
        for row in rows[2:]:
            if row[column]:
                registers, spilled, shared = row[column].split(" / ")
                of_one[row[0].strip("`"), row[1]] = Resources(
                    int(registers), int(spilled), round(float(shared) * 1024)
                )
    return found


def with_table(page: str) -> str:
    """Return the page with the current table, the version of the compiler, and the digest of the code."""
    before, after = page.split(HEADING)
    text = table({one: measure(one) for one in ARCHITECTURES})
    after = re.sub(r"Triton \d+\.\d+", f"Triton {compiler_version()}", after)
    after = re.sub(r"of code `\w+`", f"of code `{digest()}`", after)
    return before + HEADING + re.sub(r"(?ms)^\|.*^\|[^\n]*$", lambda _: text, after, count=1)


def compiler_version() -> str:
    """Return the compiler's version without its patch number."""
    return ".".join(triton.__version__.split(".")[:2])


def digest() -> str:
    """Return a digest of all kernels' code, and of this module's."""
    paths = sorted(Path(linear.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in (*paths, Path(__file__)))).hexdigest()[:12]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
