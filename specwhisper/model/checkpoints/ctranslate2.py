"""Read models of CTranslate2, which faster-whisper and whisperX use.

``model.bin`` is a header and then each variable with its name, shape, type and numbers, little endian. Sizes
are the shapes', and rows of Q, K and V are fused. Quantised matrices are multiplied out when they are read:
they are other weights than those they were made of, and so another target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.files import MODEL_BIN, ModelFiles
from specwhisper.model.checkpoints.generation import Generation
from specwhisper.model.checkpoints.published import generation_of
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer
from specwhisper.model.checkpoints.weights import (
    DECODER,
    EMBEDDING,
    ENCODER,
    PROJECTION,
    StoredArray,
    Weights,
    WeightsFile,
)

SPEC = "WhisperSpec"
FILE_VERSION = 6  # every Whisper model's
# CTranslate2's numbers of types; uint16 are the bits of bfloat16.
NUMBER_TYPES = ("<f4", "|i1", "<i2", "<i4", "<f2", "<u2")
QUANTISED = ("|i1", "<i2")
MAX_RANK = 4
NORM = {"weight": "gamma", "bias": "beta"}
LINEAR = {"weight": "weight", "bias": "bias"}
# Parts of an attention layer: the variable, and the parts that its rows are.
SELF_ATTENTION = {"linear_0": ("q_proj", "k_proj", "v_proj"), "linear_1": ("out_proj",)}
CROSS_ATTENTION = {"linear_0": ("q_proj",), "linear_1": ("k_proj", "v_proj"), "linear_2": ("out_proj",)}


class CTranslate2Model:
    """A folder with a ``model.bin`` of CTranslate2.

    Its config.json has lists of tokens and no sizes.
    """

    def __init__(self, files: ModelFiles, config: Mapping[str, Any], path: Path) -> None:
        self._files = files
        self._config = config
        self._path = path
        self._variables = read_variables(path)

    @property
    def is_quantised(self) -> bool:
        return any(variable.scale is not None for variable in self._variables.values())

    @cached_property
    def sizes(self) -> ModelSizes:
        return read_sizes(self._files.name, config_of(self._variables), source=MODEL_BIN)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = read_tokenizer(self._files)
        if tokenizer is None:
            raise CheckpointError(
                f"Model '{self._files.name}' has no tokenizer.json: fetch it again together with it, or put "
                "that of the model it was converted from beside its model.bin."
            )
        return tokenizer

    @property
    def generation(self) -> Generation:
        """The values of generation; older converters wrote none."""
        stated = {
            "suppress_tokens": self._config.get("suppress_ids"),
            "begin_suppress_tokens": self._config.get("suppress_ids_begin"),
            "languages": self._config.get("lang_ids"),
            "alignment_heads": self._config.get("alignment_heads"),
        }
        return generation_of(self._files.name, self.sizes, self.tokenizer, stated)

    def weights(self) -> tuple[Weights, list[Path]]:
        return weights_of(self._variables), [self._path]


@dataclass(slots=True, eq=False)
class _Variable:
    """A variable of a file; ``scale``: what quantised numbers are to be divided by."""

    file: WeightsFile
    start: int
    number_type: str
    shape: tuple[int, ...]
    scale: _Variable | None = None

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.number_type).itemsize

    def read(self) -> NDArray[Any]:
        numbers = self.file.read(self.start, self.num_bytes).view(self.number_type).reshape(self.shape)
        if self.scale is None:
            return numbers
        scale = self.scale.read().astype(np.float32)
        floats: NDArray[np.float32] = numbers.astype(np.float32)
        floats /= scale.reshape(-1, *(1 for _ in self.shape[1:]))
        return floats

    def part(self, index: int, num_parts: int) -> _Variable:
        if num_parts == 1:
            return self
        if not self.shape or self.shape[0] % num_parts:
            raise ValueError(f"{MODEL_BIN} has a matrix of {self.shape} in place of {num_parts}")
        shape = (self.shape[0] // num_parts, *self.shape[1:])
        start = self.start + index * (self.num_bytes // num_parts)
        part = _Variable(self.file, start, self.number_type, shape)
        if self.scale is not None:
            is_by_row = self.scale.shape == self.shape[:1]
            part.scale = self.scale.part(index, num_parts) if is_by_row else self.scale
        return part


def _string(file: WeightsFile) -> str:
    """Read a string, which ends with a zero byte."""
    return file.take(file.number("H")).removesuffix(b"\0").decode()


def read_variables(path: Path) -> dict[str, _Variable]:
    """Return the variables of a file by name."""
    file = WeightsFile(path)
    version, spec = file.number(), _string(file)
    if spec != SPEC or version != FILE_VERSION:
        raise ValueError(f"{MODEL_BIN} is a {spec} of version {version}, not a {SPEC} of {FILE_VERSION}")
    file.number()  # revision of the spec
    variables: dict[str, _Variable] = {}
    for _ in range(file.number()):
        name, rank = _string(file), file.number("B")
        if rank > MAX_RANK:
            raise ValueError(f"{MODEL_BIN} is damaged: '{name}' has {rank} axes")
        shape = tuple(file.number() for _ in range(rank))
        type_, num_bytes = file.number("B"), file.number()
        if type_ >= len(NUMBER_TYPES):
            raise ValueError(
                f"{MODEL_BIN} has numbers of an unknown type: convert the model again as float16"
            )
        variable = _Variable(file, file.skip(num_bytes), NUMBER_TYPES[type_], shape)
        if variable.num_bytes != num_bytes:
            raise ValueError(f"{MODEL_BIN} is damaged: '{name}' has {num_bytes} bytes")
        variables[name] = variable
    for _ in range(file.number()):
        alias, name = _string(file), _string(file)
        if name not in variables:
            raise ValueError(f"{MODEL_BIN} is damaged: it has no '{name}'")
        variables[alias] = variables[name]
    return _scaled(variables)


def _scaled(variables: dict[str, _Variable]) -> dict[str, _Variable]:
    """Return the variables, the quantised ones with their scales.

    A scale may be there under one of a variable's names only.
    """
    for name, variable in variables.items():
        scale = variables.get(f"{name}_scale")
        if variable.number_type in QUANTISED and scale is not None:
            if scale.number_type != "<f4" or scale.shape not in ((), (1,), variable.shape[:1]):
                raise ValueError(f"{MODEL_BIN} is damaged: the scale of '{name}' does not fit it")
            variable.scale = scale
    for name, variable in variables.items():
        if variable.number_type in QUANTISED and variable.scale is None and name.endswith("/weight"):
            raise ValueError(f"{MODEL_BIN} has no scale of '{name}'")
    return variables


def config_of(variables: Mapping[str, _Variable]) -> dict[str, int]:
    def variable(name: str, rank: int = 0) -> _Variable:
        if name not in variables or len(variables[name].shape) < rank:
            raise ValueError(f"{MODEL_BIN} has no '{name}' of a Whisper model")
        return variables[name]

    def length(name: str, axis: int) -> int:
        return variable(name, axis + 1).shape[axis]

    config = {
        "vocab_size": length("decoder/embeddings/weight", 0),
        "d_model": length("decoder/embeddings/weight", 1),
        "num_mel_bins": length("encoder/conv1/weight", 1),
        "max_source_positions": length("encoder/position_encodings/encodings", 0),
        "max_target_positions": length("decoder/position_encodings/encodings", 0),
    }
    for side in ("encoder", "decoder"):
        layers = 0
        while f"{side}/layer_{layers}/ffn/linear_0/bias" in variables:
            layers += 1
        config[f"{side}_layers"] = layers
        config[f"{side}_ffn_dim"] = length(f"{side}/layer_0/ffn/linear_0/bias", 0)
        config[f"{side}_attention_heads"] = int(variable(f"{side}/num_heads").read().item())
    return config


def weights_of(variables: Mapping[str, _Variable]) -> Weights:
    """Return the weights by transformers' names; those of other names are left out."""
    arrays: dict[str, _Variable] = {}

    def put(name: str, source: str, kinds: Mapping[str, str] = LINEAR, parts: Sequence[str] = ("",)) -> None:
        for own, theirs in kinds.items():
            if (variable := variables.get(f"{source}/{theirs}")) is None:
                continue  # missed by complete_weights
            for i, part in enumerate(parts):
                each = variable.part(i, len(parts))
                if (part, own) != ("k_proj", "bias"):
                    arrays[".".join(filter(None, (name, part, own)))] = each
                elif each.read().any():
                    raise ValueError(f"{MODEL_BIN} has a bias of keys, which Whisper models have not")

    for conv in ("conv1", "conv2"):
        put(f"{ENCODER}.{conv}", f"encoder/{conv}")
    put(EMBEDDING.removesuffix(".weight"), "decoder/embeddings", {"weight": "weight"})
    projection = variables.get("decoder/projection/weight")
    if projection is not None and projection is not variables.get("decoder/embeddings/weight"):
        arrays[PROJECTION] = projection
    for side, root in (("encoder", ENCODER), ("decoder", DECODER)):
        put(f"{root}.embed_positions", f"{side}/position_encodings", {"weight": "encodings"})
        put(f"{root}.layer_norm", f"{side}/layer_norm", NORM)
        for i in range(config_of(variables)[f"{side}_layers"]):
            layer, source = f"{root}.layers.{i}", f"{side}/layer_{i}"
            for name, theirs, linears in (
                ("self_attn", "self_attention", SELF_ATTENTION),
                ("encoder_attn", "attention", CROSS_ATTENTION),
            ):
                put(f"{layer}.{name}_layer_norm", f"{source}/{theirs}/layer_norm", NORM)
                for linear, parts in linears.items():
                    put(f"{layer}.{name}", f"{source}/{theirs}/{linear}", parts=parts)
            put(f"{layer}.final_layer_norm", f"{source}/ffn/layer_norm", NORM)
            put(f"{layer}.fc1", f"{source}/ffn/linear_0")
            put(f"{layer}.fc2", f"{source}/ffn/linear_1")
    return Weights({name: StoredArray(each.shape, each.read) for name, each in arrays.items()})
