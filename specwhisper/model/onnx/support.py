"""Checks of what ONNX Runtime can run."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from specwhisper.model.checkpoints.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

DTYPES = ("float32", "int8")
ONNXRUNTIME, ONNX = "1.32", "1.23"  # the last releases that were tried
RUNTIME = (1, 32)  # the first release whose attention takes rows of different lengths
HEAD_SIZE_MULTIPLE = 8  # its attention takes no other


def unsupported(checkpoint: Checkpoint) -> str | None:
    """Return why ONNX Runtime cannot run a checkpoint; ``None`` if it can."""
    sizes = checkpoint.sizes
    if checkpoint.dtype not in DTYPES:
        return f"it computes in {' or '.join(DTYPES)}, not in {checkpoint.dtype}"
    if sizes.activation_function != "gelu":
        return f"its layers have the activation 'gelu', not '{sizes.activation_function}'"
    if (head_size := sizes.d_model // sizes.decoder_attention_heads) % HEAD_SIZE_MULTIPLE:
        return f"attention heads have a multiple of {HEAD_SIZE_MULTIPLE} numbers, not {head_size}"
    try:
        found = version("onnxruntime")
        version("onnx")
    except PackageNotFoundError as error:
        return f"the package {error.name} is not installed"
    if tuple(int(part) for part in found.split(".")[:2]) < RUNTIME:
        return f"it takes onnxruntime {RUNTIME[0]}.{RUNTIME[1]} or later, not {found}"
    if checkpoint.dtype == "int8" and not _sums_bytes_exactly():
        return "this processor has no VNNI, so sums of bytes overflow"
    return None


@cache
def log_untried() -> None:
    """Log once if this release of ONNX Runtime was not tried.

    That a session's text does not depend on its company is shown by tests of a release, not promised by it.
    """
    found = version("onnxruntime")
    if found.rpartition(".")[0] != ONNXRUNTIME:
        logger.warning("onnxruntime was not tried", extra={"release": found, "tried": ONNXRUNTIME})


def _sums_bytes_exactly() -> bool:
    from specwhisper.model.onnx.layers import sums_bytes_exactly  # loads the runtime

    return sums_bytes_exactly()
