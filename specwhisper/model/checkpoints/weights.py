"""A model's weights by transformers' names, each read when it is asked for.

Files are read, not mapped into memory as the safetensors package does: a file that is overwritten later
cannot end the process. And NumPy has no bfloat16, which that package would need to return one.
"""

from __future__ import annotations

import json
import math
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.sizes import ModelSizes

# safetensors' names of number types. NumPy has no bfloat16: it stands for the upper half of a float32.
NUMBER_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
CACHE_LINE = 64  # bytes; torch's own arrays begin at such a boundary too
ENCODER, DECODER = "model.encoder", "model.decoder"  # how names of their weights begin
EMBEDDING, PROJECTION = f"{DECODER}.embed_tokens.weight", "proj_out.weight"


@dataclass(frozen=True, slots=True, eq=False)
class StoredArray:
    """A weight in a file; ``read`` returns its numbers in their own type, bfloat16 as its bits in uint16."""

    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]


class Weights(Mapping[str, NDArray[np.float32]]):
    """The weights of a model, in float32.

    Each access reads the file again, so a large model is never in memory twice. Only what is inside an ONNX
    file stays in memory with it.
    """

    def __init__(self, arrays: Mapping[str, StoredArray]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        stored = self.stored(name)
        if stored.dtype == np.uint16:
            stored = np.left_shift(stored, 16, dtype=np.uint32).view(np.float32)
        floats: NDArray[np.float32] = stored.astype(np.float32, copy=False)
        return floats

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def stored(self, name: str) -> NDArray[Any]:
        """Return a weight in the type that it is stored in.

        uint16 are the bits of bfloat16; the others are floats.
        """
        return self._arrays[name].read()

    def is_same(self, name: str, other: str) -> bool:
        return self._arrays[name] is self._arrays[other] or np.array_equal(self[name], self[other])

    def of_encoder(self) -> list[str]:
        return [name for name in self if name.startswith(f"{ENCODER}.")]

    def reordered(self, ids: Sequence[int | None]) -> Weights:
        """Return the weights with embedding and projection in another vocabulary's order.

        ``ids``: this model's id of each token of that vocabulary; a token that it lacks has the row of id 0.
        """
        rows = [0 if i is None else i for i in ids]
        arrays = {name: self._arrays[name] for name in self if name not in (EMBEDDING, PROJECTION)}
        embedding = _in_order(self._arrays[EMBEDDING], rows)
        is_tied = self.is_same(EMBEDDING, PROJECTION)
        projection = embedding if is_tied else _in_order(self._arrays[PROJECTION], rows)
        return Weights(arrays | {EMBEDDING: embedding, PROJECTION: projection})

    def close(self) -> None:
        self._arrays.clear()


def weights_in_files(paths: Iterable[Path]) -> Weights:
    """Open the weights of safetensors files.

    They are those of the files as they are now, even if others take their names.
    """
    return Weights({name: array for path in paths for name, array in _in_safetensors(path)})


def complete_weights(name: str, weights: Weights, sizes: ModelSizes) -> Weights:
    """Return the weights that a model of these sizes has, under their full names.

    Names may lack ``model.`` in front, as the base model's do. Embedding and projection may stand for each
    other in a tied model. Others are left out.
    """
    given = weights._arrays
    known = weight_shapes(sizes)
    found = {key if key in known else f"model.{key}": array for key, array in given.items()}
    if PROJECTION not in found and f"model.{PROJECTION}" in found:
        found[PROJECTION] = found[f"model.{PROJECTION}"]
    if sizes.tie_word_embeddings:
        for own, other in ((PROJECTION, EMBEDDING), (EMBEDDING, PROJECTION)):
            if own not in found and other in found:
                found[own] = found[other]
    missing = [key for key in known if key not in found]
    _check(missing, name, "is missing", "are missing")
    misshapen = [key for key, shape in known.items() if found[key].shape != shape]
    _check(misshapen, name, "does not fit its sizes", "do not fit its sizes")
    return Weights({key: found[key] for key in known})


def _check(keys: list[str], name: str, of_one: str, of_several: str) -> None:
    if keys:
        several = f"{len(keys)} weights {of_several}, '{min(keys)}' first"
        problem = several if len(keys) > 1 else f"weight '{keys[0]}' {of_one}"
        raise CheckpointError(f"Model '{name}' is incomplete: {problem}; fetch or save it again.")


def weight_shapes(sizes: ModelSizes) -> dict[str, tuple[int, ...]]:
    width, shapes = sizes.d_model, dict[str, tuple[int, ...]]()

    def linear(name: str, inputs: int, outputs: int, *, has_bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        if has_bias:
            shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    def attention(name: str) -> None:
        for part in ("q", "k", "v"):
            linear(f"{name}.{part}_proj", width, width, has_bias=part != "k")
        linear(f"{name}.out_proj", width, width)
        norm(f"{name}_layer_norm")

    for name, inputs in (("conv1", sizes.num_mel_bins), ("conv2", width)):
        shapes[f"{ENCODER}.{name}.weight"] = (width, inputs, 3)
        shapes[f"{ENCODER}.{name}.bias"] = (width,)
    shapes[EMBEDDING] = shapes[PROJECTION] = (sizes.vocab_size, width)
    for root, num_positions, num_layers, hidden, attentions in (
        (ENCODER, sizes.max_source_positions, sizes.encoder_layers, sizes.encoder_ffn_dim, ("self_attn",)),
        (
            *(DECODER, sizes.max_target_positions, sizes.decoder_layers, sizes.decoder_ffn_dim),
            ("self_attn", "encoder_attn"),
        ),
    ):
        shapes[f"{root}.embed_positions.weight"] = (num_positions, width)
        norm(f"{root}.layer_norm")
        for layer in (f"{root}.layers.{i}" for i in range(num_layers)):
            for part in attentions:
                attention(f"{layer}.{part}")
            linear(f"{layer}.fc1", width, hidden)
            linear(f"{layer}.fc2", hidden, width)
            norm(f"{layer}.final_layer_norm")
    return shapes


def _in_order(stored: StoredArray, rows: Sequence[int]) -> StoredArray:
    return StoredArray((len(rows), *stored.shape[1:]), lambda: stored.read()[rows])


class WeightsFile:
    """A file of weights, and a place in its header, which moves on with each field.

    Methods of fields raise :class:`ValueError` if the file ends before the field does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self._lock = Lock()  # guards the position in the file
        weakref.finalize(self, self._file.close)

    def read(self, start: int, num_bytes: int) -> NDArray[np.uint8]:
        """Read bytes, into memory that begins at a cache line."""
        room = np.empty(num_bytes + CACHE_LINE, np.uint8)
        offset = -room.ctypes.data % CACHE_LINE
        block = room[offset : offset + num_bytes]
        with self._lock:
            self._file.seek(start)
            num_read = self._file.readinto(block.data)
        if num_read < num_bytes:
            raise CheckpointError(f"{self.path} was cut off while it was read: fetch or save it again.")
        return block

    @property
    def is_at_end(self) -> bool:
        return self.position >= self.size

    def skip(self, num_bytes: int) -> int:
        """Return where the next bytes are, and pass over them."""
        start = self.position
        if start + num_bytes > self.size:
            raise ValueError(f"{self.path.name} is cut off")
        self.position += num_bytes
        return start

    def take(self, num_bytes: int) -> bytes:
        start = self.skip(num_bytes)
        with self._lock:
            self._file.seek(start)
            return self._file.read(num_bytes)

    def number(self, code: str = "I") -> int:
        """Read a number of one of struct's types; the default is unsigned."""
        value: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value


def _in_safetensors(path: Path) -> Iterator[tuple[str, StoredArray]]:
    """Yield the weights of a safetensors file: the length of a header, the header, the numbers."""
    try:
        file = WeightsFile(path)
        if (num_header_bytes := file.number("Q")) > MAX_HEADER_BYTES:
            raise ValueError
        for name, entry in json.loads(file.take(num_header_bytes)).items():
            if name != "__metadata__":
                yield name, _entry(file, entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is cut off, or no safetensors file") from error


def _entry(file: WeightsFile, entry: Mapping[str, Any]) -> StoredArray:
    """Return an array; the file's position is after the header, where offsets begin."""
    type_name = str(entry["dtype"])
    begin, end = (file.position + int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(length) for length in entry["shape"])
    number_type = NUMBER_TYPES.get(type_name)
    if not file.position <= begin <= end <= file.size or min(shape, default=0) < 0:
        raise ValueError
    if number_type is not None and math.prod(shape) * np.dtype(number_type).itemsize != end - begin:
        raise ValueError

    def read() -> NDArray[Any]:
        if number_type is None:
            raise CheckpointError(
                f"{file.path} has weights of type {type_name}: save it again as float32, float16 or bfloat16."
            )
        return file.read(begin, end - begin).view(number_type).reshape(shape)

    return StoredArray(shape, read)
