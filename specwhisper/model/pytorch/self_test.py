"""Compare Triton's kernels with PyTorch on the device that they are for, before they serve.

``python -m specwhisper.model.pytorch.self_test`` does so for :func:`run`: a kernel that stops the GPU ends
only that process.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from specwhisper.model.backend import is_device_fault
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.pytorch import kernels
from specwhisper.model.pytorch.operations import BatchRow, PlainOperations
from specwhisper.model.pytorch.packed import PackedInputs, bucket_for

logger = logging.getLogger(__name__)

BOUNDS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
# Each is compiled by itself: one token, a number that no 16 divides, and every size of block.
NUM_TOKENS = (1, 5, 16, 32, 64)
ROWS = ((2, 60, 5), (0, 0, 40), (1, 17, 1))  # slot, start and width: they take one block, three, and one
NUM_SLOTS = 4  # the last one is for padding
TIMEOUT_S = 120.0  # longest self-test; the first one compiles the kernels


Runs = Mapping[str, Callable[[PlainOperations], Tensor]]  # by kernel: what runs it by given operations


class Finding(NamedTuple):
    """The result of a check: the largest difference, or the error that there was instead."""

    name: str
    bound: float
    difference: float | None = None
    error: str = ""

    @property
    def agrees(self) -> bool:
        return self.difference is not None and self.difference <= self.bound  # no number is above NaN

    def __str__(self) -> str:
        if self.difference is None:
            return self.error
        return f"differs by {self.difference:.1e} of the largest number, where {self.bound:.0e} is allowed"


def compare(runs: Runs, fused: PlainOperations, bound: float) -> Iterator[Finding]:
    """Compare kernels with PyTorch, and yield what is found; a kernel that stops the device is the last.

    ``bound``: the largest difference that is allowed, relative to the largest number of the plain result.
    """
    for name, run_by in runs.items():
        try:
            with torch.inference_mode():
                expected = run_by(PlainOperations()).double()
                difference = float((run_by(fused).double() - expected).abs().max() / expected.abs().max())
            yield Finding(name, bound, difference)
        except Exception as error:
            message = str(error).strip().partition("\n")[0]
            yield Finding(name, bound, error=f"{type(error).__name__}: {message}")
            if is_device_fault(error):
                return


def run(sizes: ModelSizes, dtype: torch.dtype, device: torch.device) -> list[Finding]:
    """Compare all kernels in a process of their own; if it ended badly, that is the last finding."""
    wanted = json.dumps([asdict(sizes), str(dtype).removeprefix("torch."), str(device)])
    command = [sys.executable, "-m", "specwhisper.model.pytorch.self_test", wanted]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [Finding("self-test", 0.0, error=f"it took longer than {TIMEOUT_S:.0f} s")]
    except OSError as error:
        return [Finding("self-test", 0.0, error=f"it did not start: {error}")]
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]  # libraries may print, too
    try:
        found = [Finding(**json.loads(line)) for line in lines]
    except (ValueError, TypeError):  # it ended while it wrote
        found = []
    if ran.returncode or not found:
        *_, last = ("", *ran.stderr.strip().splitlines())
        found.append(Finding("self-test", 0.0, error=f"it ended with status {ran.returncode}: {last}"))
    return found


def main(wanted: str) -> None:
    """Print what each check finds, a line of JSON each."""
    sizes, dtype, device = json.loads(wanted)
    sizes, dtype, device = ModelSizes(**sizes), getattr(torch, dtype), torch.device(device)
    fused = kernels.FusedOperations(sizes, device)
    for one in compare(checks(sizes, dtype, device), fused, BOUNDS[dtype]):
        print(json.dumps(one._asdict()), flush=True)


def operations_for(sizes: ModelSizes, dtype: torch.dtype, device: torch.device) -> PlainOperations:
    """Return the kernels if all of them agree with PyTorch; else warn, and return PyTorch's operations."""
    reason = kernels.reason_against(device, sizes.d_model // sizes.decoder_attention_heads)
    if reason is None:
        findings = run(sizes, dtype, device)
        reason = next((f"{one.name}: {one}" for one in findings if not one.agrees), None)
    if reason is None:
        return kernels.FusedOperations(sizes, device)
    logger.warning("fused kernels are not used: PyTorch's operations serve", extra={"reason": reason})
    return PlainOperations()


def table(sizes: ModelSizes, dtype_name: str, device_name: str) -> tuple[str, bool]:
    """Return a table of all kernels, and whether they agree; if none can run, the reason, and ``False``."""
    dtype, device = getattr(torch, dtype_name), torch.device(device_name)
    reason = (
        f"{dtype_name} runs on CPUs only"
        if dtype not in BOUNDS
        else kernels.reason_against(device, sizes.d_model // sizes.decoder_attention_heads)
    )
    if reason is not None:
        without = "Name a GPU with --device." if device.type == "cpu" else "PyTorch's operations serve."
        return f"No kernel runs on {device}: {reason}. {without}", False
    found = run(sizes, dtype, device)
    lines = [f"{'kernel':40} {'difference':>10} {'bound':>8}"]
    for one in found:
        difference = "-" if one.difference is None else f"{one.difference:.1e}"
        verdict = "agrees" if one.agrees else one.error or "DIFFERS"
        lines.append(f"{one.name:40} {difference:>10} {one.bound:8.0e}  {verdict}")
    agrees = all(one.agrees for one in found)
    which = "The kernels" if agrees else "PyTorch's operations"
    lines.append(f"{which} serve on {device}.")
    return "\n".join(lines), agrees


@torch.inference_mode()
def checks(sizes: ModelSizes, dtype: torch.dtype, device: torch.device) -> Runs:
    """Return what runs each kernel of a forward pass, with random numbers at a model's true widths."""
    heads, width = sizes.decoder_attention_heads, sizes.d_model
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    inputs = PackedInputs(bucket_for([row[2] for row in ROWS]), device, spare_slot=NUM_SLOTS - 1)
    inputs.fill([BatchRow(slot, start, [0] * tokens) for slot, start, tokens in ROWS])
    qkv = normal(len(inputs.ids), 3, heads, width // heads)
    texts = normal(2, NUM_SLOTS, heads, sizes.max_target_positions, width // heads)
    window = normal(2, NUM_SLOTS, heads, sizes.max_source_positions, width // heads)
    query = qkv[:, 0].contiguous()

    def attend_self(operations: PlainOperations) -> Tensor:
        cache = texts.clone()
        attended = operations.attend_self(qkv, cache, inputs.places)
        return torch.cat([_of_rows(attended).flatten(), cache[:, :-1].flatten()])

    def attend_cross(operations: PlainOperations) -> Tensor:
        for _ in range(2):  # the first pass must not change the next
            attended = operations.attend_cross(query, window, inputs.places)
        return _of_rows(attended)

    def linear(num_inputs: int, num_outputs: int, *, has_bias: bool = True) -> nn.Linear:
        made = nn.Linear(num_inputs, num_outputs, bias=has_bias, device="meta").requires_grad_(False)
        made.weight = nn.Parameter(normal(num_outputs, num_inputs) / num_inputs**0.5, requires_grad=False)
        if has_bias:
            made.bias = nn.Parameter(normal(num_outputs), requires_grad=False)
        return made

    norm = nn.LayerNorm(width, device="meta")
    norm.weight, norm.bias = (nn.Parameter(normal(width), requires_grad=False) for _ in range(2))
    hidden, expanded = normal(NUM_TOKENS[-1], width) + 1, normal(NUM_TOKENS[-1], sizes.decoder_ffn_dim)

    def project(into: nn.Linear, gelu: bool, out_dtype: torch.dtype, operations: PlainOperations) -> Tensor:
        found = []
        for n in NUM_TOKENS:
            out = torch.empty((n, into.out_features), dtype=out_dtype, device=device)
            found.append(operations.norm_linear(hidden[:n], norm, into, gelu=gelu, out=out).flatten())
        return torch.cat(found)

    def add(values: Tensor, back: nn.Linear, operations: PlainOperations) -> Tensor:
        found = [operations.linear_add(values[:n], back, hidden[:n]).flatten() for n in NUM_TOKENS]
        return torch.cat(found)

    return {
        "self-attention": attend_self,
        "cross-attention": attend_cross,
        "norm and queries": partial(project, linear(width, width), False, dtype),
        "norm and queries, keys, values": partial(project, linear(width, 3 * width), False, dtype),
        "norm, projection and GELU": partial(project, linear(width, len(expanded[0])), True, dtype),
        "norm and logits": partial(
            project, linear(width, sizes.vocab_size, has_bias=False), False, torch.float32
        ),
        "projection and residual": partial(add, hidden, linear(width, width)),
        "second projection and residual": partial(add, expanded, linear(len(expanded[0]), width)),
    }


def _of_rows(attended: Tensor) -> Tensor:
    return attended[: sum(tokens for _, _, tokens in ROWS)]


if __name__ == "__main__":
    main(sys.argv[1])
