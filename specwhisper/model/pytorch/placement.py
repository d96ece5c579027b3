"""Place the decoder's modules by a device map: on devices, the CPU or disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from specwhisper.errors import InvalidRequest


def place(
    decoder: nn.Module,
    device_map: Mapping[str, int | str],
    *,
    offload_folder: Path | None,
    main_device: torch.device,
) -> None:
    """Dispatch the modules.

    Modules on "cpu" or "disk" run on ``main_device``: accelerate copies their weights there.

    Raises
    ------
    InvalidRequest
        if the map names no device for a parameter, no folder for "disk", or an unknown device.
    """
    from accelerate import dispatch_model  # only needed for models larger than one device

    if "" in device_map:  # accelerate offloads the parts of a model only
        device_map = dict.fromkeys((name for name, _ in decoder.named_children()), device_map[""])
    for parameter, _ in decoder.named_parameters():
        if not any(parameter.startswith(f"{module}.") for module in device_map):
            raise InvalidRequest(
                f"The device map has no device for '{parameter}': name one for every part of the decoder "
                "(embed_tokens, embed_positions, layers, norm and unembed; layers.0 and so on one by one)."
            )
    if "disk" in device_map.values() and offload_folder is None:
        raise InvalidRequest("The device map puts weights on disk: name an offload folder.")
    try:
        dispatch_model(
            decoder,
            dict(device_map),
            main_device=str(main_device),
            offload_dir=offload_folder,
            force_hooks=True,
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidRequest(
            f"The device map cannot be followed ({reason}): name devices that exist."
        ) from error
