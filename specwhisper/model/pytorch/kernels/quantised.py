"""Round keys and values to 8 bits, which halves most of the memory traffic."""

from __future__ import annotations

import torch
from torch import Tensor


def quantise_cache(key_value: Tensor, dtype: torch.dtype = torch.int8) -> tuple[Tensor, Tensor]:
    """Round keys and values to 8 bits, with a scale for each head and position.

    Parameters
    ----------
    key_value : ... x head_size.
    dtype : ``int8``, whose steps are equal, or ``float8_e4m3fn``, whose steps grow with the numbers and are
        coarser on the whole; it needs compute capability 8.9.

    Returns
    -------
    The rounded numbers, of the same shape, and the scales to multiply them by: float16, of that shape
    without ``head_size``.
    """
    limit = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    exact = key_value.float()
    scales = exact.abs().amax(dim=-1) / limit
    scales = scales.clamp(min=torch.finfo(torch.float16).tiny).to(torch.float16)  # never 0
    rounded = (exact / scales[..., None].float()).clamp(-limit, limit)
    if dtype == torch.int8:
        rounded = rounded.round()  # the cast alone would truncate
    return rounded.to(dtype), scales
