"""Choose what a model runs on, and load it there.

ONNX Runtime is for CPUs, PyTorch for everything else. Each is imported when it is chosen.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.extras import needs_extra
from specwhisper.model.backend import Backend, Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.types import DeviceMap

logger = logging.getLogger(__name__)

DTYPES = ("float32", "int8")
ONNXRUNTIME = "1.32"  # the last release that was tried
HEAD_SIZE_MULTIPLE = 8  # its attention takes no other


Library = Literal["onnx", "pytorch"]
INT8_MAPPED = "int8 weights are for a CPU without device map: choose device cpu, or another dtype."

_limit: int | None = None


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
        version("onnxruntime")
        version("onnx")
    except PackageNotFoundError as error:
        return f"the package {error.name} is not installed"
    if checkpoint.dtype == "int8":
        from specwhisper.model.onnx.graph import sums_bytes_exactly  # loads the runtime

        if not sums_bytes_exactly():
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


def library_for(
    checkpoint: Checkpoint,
    device: object = "cpu",
    *,
    device_map: DeviceMap | None = None,
    has_static_shapes: bool | None = None,
) -> Library:
    """Return the library that runs a checkpoint on a device."""
    is_int8 = checkpoint.dtype == "int8"
    if str(device) != "cpu" or device_map is not None or has_static_shapes:
        if is_int8:
            raise UnsupportedOption(INT8_MAPPED)
        return "pytorch"
    reason = unsupported(checkpoint)
    if reason and is_int8:
        raise UnsupportedOption(
            f"ONNX Runtime cannot run '{checkpoint.name}' in int8: {reason}. Choose float32."
        )
    return "pytorch" if reason else "onnx"


def load_encoder(checkpoint: Checkpoint, device: object = "cpu") -> Encoder:
    if library_for(checkpoint, device) == "onnx":
        from specwhisper.model.onnx.decoder import OnnxEncoder

        return OnnxEncoder(checkpoint, num_threads())
    with needs_extra(f"'{checkpoint.name}' in {checkpoint.dtype} on {device}", "server"):
        from specwhisper.model.pytorch.backend import TorchEncoder

    return TorchEncoder(checkpoint, str(device))


@dataclass(frozen=True, eq=False)
class SharedEncoder:
    """One model's access to the encoder that it shares with another; thread-safe.

    A distilled draft keeps the encoder of its teacher, so a window is encoded once. A model
    never receives its own encoding: sessions without a draft share nothing.
    """

    encoder: Encoder
    num_kept: int
    kept: OrderedDict[bytes, tuple[SharedEncoder, Any]]  # encodings for the other model, the oldest first
    lock: Lock  # draft and target may encode in different threads: the second waits

    max_windows = 1  # an encoding may be needed by another thread, or on another stream

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows one by one, or return the other model's encodings."""
        return [self._encode(features) for features in windows]

    def _encode(self, features: Features) -> Any:
        key = hashlib.blake2b(features.tobytes()).digest()
        with self.lock:
            by, encoded = self.kept.get(key, (self, None))
            if by is not self:
                del self.kept[key]
                return encoded
            (encoded,) = self.encoder([features])
            self.kept[key] = (self, encoded)
            if len(self.kept) > self.num_kept:  # the other model did not need it, or not yet
                self.kept.popitem(last=False)
            return encoded


def share(encoder: Encoder, num_windows: int) -> tuple[SharedEncoder, SharedEncoder]:
    """Return two models' access to one encoder.

    ``num_windows``: most windows kept for the other model: one for each session that may be open.
    """
    shared = encoder, num_windows, OrderedDict[bytes, tuple[SharedEncoder, Any]](), Lock()
    return SharedEncoder(*shared), SharedEncoder(*shared)


def load_encoders(
    draft: Checkpoint,
    target: Checkpoint,
    num_windows: int,
    *,
    draft_device: object = "cpu",
    target_device: object = "cpu",
) -> tuple[Encoder, Encoder]:
    """Load the encoders of draft and target: a single one if they are equal.

    ``num_windows``: most windows kept for the other model: one for each session that may be open.
    """
    devices = str(draft_device), str(target_device)
    libraries = library_for(draft, draft_device), library_for(target, target_device)
    if len(set(devices)) == len(set(libraries)) == 1 and has_same_encoder(draft, target):
        return share(load_encoder(target, target_device), num_windows)
    return load_encoder(draft, draft_device), load_encoder(target, target_device)


def has_same_encoder(draft: Checkpoint, target: Checkpoint) -> bool:
    ours, theirs = (
        (each.dtype, each.sizes.encoder_attention_heads, each.sizes.activation_function)
        for each in (draft, target)
    )
    names = target.weights.of_encoder()
    return (
        ours == theirs
        and draft.weights.of_encoder() == names
        and all(np.array_equal(draft.weights[name], target.weights[name]) for name in names)
    )


def open_backend(
    checkpoint: Checkpoint,
    num_slots: int,
    *,
    device: object = "cpu",
    encoder: Encoder | None = None,
    ids: Sequence[int | None] | None = None,
    device_map: DeviceMap | None = None,
    offload_folder: Path | None = None,
    has_static_shapes: bool | None = None,
) -> Backend:
    """Load a checkpoint and allocate its slots.

    Parameters
    ----------
    device : where the whole model is, unless there is a device map.
    encoder : the checkpoint's, loaded before; by default it is loaded onto ``device``.
    ids : the checkpoint's id of each token of another vocabulary, ``None`` for those that it lacks. Then
        tokens and logits are in that vocabulary's order.
    device_map : accelerate's map from module to device, "cpu" or "disk", or "auto". Modules are the decoder's
        (``layers.0``, ..., also as ``decoder.layers.0``) and the encoder's (``encoder.layers.0``, ...).
        ``encoder`` and ``decoder`` stand for all modules of one, "" for all of both. An encoder that the map
        does not name is on ``device``.
    offload_folder : for weights on disk, which are written there first.
    has_static_shapes : whether batches are padded to a few shapes; by default on a GPU without device map.
    """
    if device_map == "auto":
        with needs_extra("A device map", "server"):
            from specwhisper.model.pytorch.placement import automatic_map
        if checkpoint.dtype == "int8":
            raise UnsupportedOption(INT8_MAPPED)
        device_map, device = automatic_map(checkpoint, num_slots, str(device))
    elif isinstance(device_map, str):
        raise InvalidRequest(f'The device map is "{device_map}": name a map, or "auto".')
    encoder_map, decoder_map = split_device_map(device_map)
    if has_static_shapes is None:
        has_static_shapes = str(device).startswith("cuda") and device_map is None
    library = library_for(checkpoint, device, device_map=device_map, has_static_shapes=has_static_shapes)
    if ids is not None:
        weights, sizes = checkpoint.weights.reordered(ids), replace(checkpoint.sizes, vocab_size=len(ids))
        checkpoint = replace(checkpoint, weights=weights, sizes=sizes)
    if library == "pytorch":
        placed = f"'{checkpoint.name}' in {checkpoint.dtype} on {device}"
        with needs_extra(placed if device_map is None else "A device map", "server"):
            from specwhisper.model.pytorch.backend import TorchEncoder, open_decoder

        of_encoder, of_decoder = (
            offload_folder and Path(offload_folder) / part for part in ("encoder", "decoder")
        )
        return open_decoder(
            checkpoint,
            num_slots,
            encoder=encoder
            or TorchEncoder(checkpoint, str(device), device_map=encoder_map, offload_folder=of_encoder),
            device=str(device),
            device_map=decoder_map,
            offload_folder=of_decoder,
            has_static_shapes=has_static_shapes,
        )
    from specwhisper.model.onnx.decoder import OnnxEncoder, SlotDecoder

    log_untried()
    encoder = encoder or OnnxEncoder(checkpoint, num_threads())
    return SlotDecoder(checkpoint, num_slots, num_threads=num_threads(), encoder=encoder)


def split_device_map(
    device_map: Mapping[str, int | str] | None,
) -> tuple[dict[str, int | str] | None, dict[str, int | str] | None]:
    """Return the maps of encoder and decoder.

    An encoder that is not named has ``None``.
    """
    if device_map is None:
        return None, None
    whole = {"": device_map[""]} if "" in device_map else {}
    maps: dict[str, dict[str, int | str]] = {"encoder": {}, "decoder": {}}
    for name, device in device_map.items():
        part, _, rest = name.partition(".")
        if part in maps:
            maps[part][rest] = device
        elif name:
            maps["decoder"][name] = device
    return (maps["encoder"] or whole or None), (maps["decoder"] or whole)


def limit_threads(num_threads: int) -> None:
    """Set the threads of models that are loaded from now on, and torch's at once."""
    global _limit
    _limit = num_threads
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(num_threads)


def num_threads() -> int:
    """Return the limit, or OMP_NUM_THREADS, or the number of this process's cores."""
    if _limit is not None:
        return _limit
    of_environment = os.environ.get("OMP_NUM_THREADS", "")
    if of_environment.isdecimal() and int(of_environment):
        return int(of_environment)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
