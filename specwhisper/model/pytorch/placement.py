"""Make PyTorch's parts of a checkpoint, and place them by a device map: on devices, the CPU or disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.activations import ACT2FN
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from specwhisper.errors import CheckpointError, InvalidRequest
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.weights import ENCODER
from specwhisper.model.pytorch.decoder import CachedDecoder

DISK, HOST = "disk", "cpu"
WHOLE_LAYERS = ["DecoderLayer", "WhisperEncoderLayer"]  # on one device each
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def empty_encoder(checkpoint: Checkpoint) -> WhisperEncoder:
    """Make transformers' encoder without weights."""
    if (activation := checkpoint.sizes.activation_function) not in ACT2FN:
        raise CheckpointError(
            f"The config.json of model '{checkpoint.name}' has activation_function={activation!r}, which "
            f"transformers does not have: fetch or save it again."
        )
    # transformers warns of special tokens that a small vocabulary lacks; an encoder has no use for any.
    values: dict[str, Any] = asdict(checkpoint.sizes) | dict.fromkeys(TOKEN_IDS, 0)
    config = WhisperConfig(**values | {"attn_implementation": "sdpa"})
    with torch.device("meta"):
        encoder: WhisperEncoder = WhisperEncoder(config).eval().requires_grad_(False)
    return encoder


def encoder_weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield the encoder's weights by name, each read when its turn comes."""
    for name in checkpoint.weights.of_encoder():
        yield name.removeprefix(f"{ENCODER}."), read_tensor(checkpoint, name)


def read_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    stored = checkpoint.weights.stored(name)
    if stored.dtype == np.uint16:
        tensor = torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(stored)
    return tensor.to(getattr(torch, checkpoint.dtype))


def place(
    module: nn.Module,
    weights: Iterable[tuple[str, Tensor]],
    device_map: Mapping[str, int | str],
    *,
    offload_folder: Path | None,
    main_device: torch.device,
) -> None:
    """Load weights into an empty module, each straight to its place, and dispatch it.

    Modules on "cpu" or "disk" run on ``main_device``: accelerate copies their weights there.

    ``weights``: by name, each read when it is asked for, so that no more than one is in memory beside its
    place.

    Raise :class:`InvalidRequest` if the map names no device for a parameter, no folder for "disk", or an
    unknown device.
    """
    from accelerate import dispatch_model  # only needed for models larger than one device
    from accelerate.utils import offload_weight

    children = [name for name, _ in module.named_children()]
    if "" in device_map:  # accelerate offloads the parts of a model only
        device_map = dict.fromkeys(children, device_map[""])
    devices = {name: _device_of(name, device_map) for name, _ in module.named_parameters()}
    kind = "decoder" if isinstance(module, CachedDecoder) else "encoder"
    for name, device in devices.items():
        if device is None:
            raise InvalidRequest(
                f"The device map has no device for '{kind}.{name}': name one for every part of the {kind} "
                f"({', '.join(f'{kind}.{child}' for child in children)}, or {kind}.layers.0 and so on)."
            )
    if DISK in device_map.values() and offload_folder is None:
        raise InvalidRequest("The device map puts weights on disk: name an offload folder.")
    on_disk: dict[str, dict[str, object]] = {}
    try:
        for name, weight in weights:
            device = devices[name]
            if device == DISK:
                assert offload_folder is not None
                offload_folder.mkdir(parents=True, exist_ok=True)
                offload_weight(weight.contiguous(), name, offload_folder, on_disk)
                weight = torch.empty_like(weight, device="meta")
            owner, _, leaf = name.rpartition(".")
            placed = nn.Parameter(weight if device == DISK else weight.to(device), requires_grad=False)
            setattr(module.get_submodule(owner), leaf, placed)
        dispatch_model(
            module,
            dict(device_map),
            main_device=str(main_device),
            offload_dir=offload_folder,
            offload_index=on_disk or None,
            force_hooks=True,
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidRequest(
            f"The device map cannot be followed ({reason}): name devices that exist."
        ) from error


def automatic_map(
    checkpoint: Checkpoint, num_slots: int, device: str
) -> tuple[dict[str, int | str] | None, str]:
    """Return accelerate's map for a checkpoint, and the main device.

    The latter runs what is offloaded. The memory of all slots is left free on each GPU, or else on the CPU.
    There is no map where one device holds all.
    """
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory, get_max_memory

    dtype = getattr(torch, checkpoint.dtype)
    with torch.device("meta"):
        decoder = CachedDecoder(checkpoint.sizes, num_slots)
        parts = nn.ModuleDict({"encoder": empty_encoder(checkpoint), "decoder": decoder})
    parts.to(dtype)
    memory = get_max_memory()
    accelerators = [name for name in memory if name != HOST]
    sizes = checkpoint.sizes
    num_positions = sizes.max_target_positions + sizes.max_source_positions
    of_slots = 2 * num_slots * sizes.decoder_layers * num_positions * sizes.d_model * dtype.itemsize
    for name in accelerators or [HOST]:
        memory[name] = max(0, memory[name] - of_slots)
    if accelerators:
        memory = get_balanced_memory(parts, memory, no_split_module_classes=WHOLE_LAYERS, dtype=dtype)
    found = dict(infer_auto_device_map(parts, memory, no_split_module_classes=WHOLE_LAYERS, dtype=dtype))
    main = next((place for place in found.values() if place not in (HOST, DISK)), HOST)
    device = f"cuda:{main}" if isinstance(main, int) else main
    return (None if set(found.values()) == {main} else found), device


def _device_of(parameter: str, device_map: Mapping[str, int | str]) -> int | str | None:
    """Return the device of the longest name in the map that holds a parameter."""
    holding = [module for module in device_map if parameter.startswith(f"{module}.")]
    return device_map[max(holding, key=len)] if holding else None
