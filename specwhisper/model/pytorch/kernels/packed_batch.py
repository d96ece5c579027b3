"""The tokens of a GPU's forward pass one after the other, and their attention."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specwhisper.model.pytorch.kernels.attention import CrossScratch, attend_cross, attend_self
from specwhisper.model.pytorch.kernels.layer_cache import LayerCache
from specwhisper.model.pytorch.kernels.packed_inputs import PackedInputs


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Tokens of all rows, padded to a bucket, on the device; a :class:`ForwardBatch`.

    Attributes
    ----------
    scratch : of cross-attention; ``None`` where the kernels do not support the caches.
    is_fused : whether kernels join projections with what comes before or after them.
    """

    inputs: PackedInputs
    scratch: CrossScratch | None
    is_fused: bool

    @property
    def ids(self) -> Tensor:
        """Token ids; 0 where there is padding."""
        return self.inputs.ids

    @property
    def positions(self) -> Tensor:
        """Position of each token in its slot."""
        return self.inputs.positions

    def attend_self(self, cache: LayerCache, qkv: Tensor) -> Tensor:
        """Write keys and values, then attend: tokens x (3 x d_model) to tokens x d_model."""
        return attend_self(cache.split_heads(qkv, 3), cache.self_cache, self.inputs)

    def attend_cross(self, cache: LayerCache, query: Tensor) -> Tensor:
        """Attend to the windows in the slots: tokens x d_model to the same."""
        heads = cache.split_heads(query, 1)[:, 0]
        return attend_cross(heads, cache.cross_cache, cache.cross_scales, self.inputs, self.scratch)
