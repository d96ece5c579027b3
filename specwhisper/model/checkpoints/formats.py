"""Open a model in its format, which is seen by content and not by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import CheckpointError
from specwhisper.extras import needs_extra
from specwhisper.model.checkpoints.ctranslate2 import CTranslate2Model
from specwhisper.model.checkpoints.files import CONFIG, MODEL_BIN, ModelFiles
from specwhisper.model.checkpoints.generation import FILE, Generation, read_generation
from specwhisper.model.checkpoints.ggml import GgmlModel
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer
from specwhisper.model.checkpoints.weights import ENCODER, StoredArray, Weights, weights_in_files

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

    from specwhisper.model.pytorch.openai_file import OpenAIModel

MERGED = re.compile(r"_merged_\d+$")  # the end of a name where decoders with and without a past are one file
FLOATS = {1: "<f4", 10: "<f2"}  # ONNX's numbers of types
EXTERNAL = 1  # TensorProto.EXTERNAL: in another file
MATRIX_NODE = re.compile(r"/(?P<path>.+)/MatMul")


def _stored(tensor: TensorProto, folder: Path, *, is_transposed: bool) -> StoredArray:
    """Return a tensor of a file; its numbers, if in another file, are read at each call.

    onnx's own reader refuses links, and the hub's cache consists of them.
    """
    from onnx import numpy_helper

    shape = tuple(tensor.dims)
    place = _place_of(tensor, folder) if tensor.data_location == EXTERNAL else None

    def read() -> NDArray[Any]:
        if place is None:
            array = numpy_helper.to_array(tensor)
        else:
            path, offset = place
            array = np.fromfile(path, FLOATS[tensor.data_type], math.prod(shape), offset=offset)
            array = array.reshape(shape)
        return np.ascontiguousarray(array.T) if is_transposed else array

    return StoredArray(shape[::-1] if is_transposed else shape, read)


def _place_of(tensor: TensorProto, folder: Path) -> tuple[Path, int]:
    """Return the file and the offset of a tensor's numbers."""
    named = {each.key: each.value for each in tensor.external_data}
    name, offset = named.get("location", ""), int(named.get("offset", 0))
    path = folder / name
    if not name or Path(name).name != name or not path.is_file():
        raise CheckpointError(f"{folder} has no file '{name}' of weights, which its model needs: fetch it.")
    num_bytes = math.prod(tensor.dims) * np.dtype(FLOATS[tensor.data_type]).itemsize
    if offset + num_bytes > path.stat().st_size:
        raise CheckpointError(f"{path} is too short for its weights: fetch it again.")
    return path, offset


def weights_in_onnx(encoder: Path, decoder: Path) -> Weights:
    """Open the weights of an encoder's and a decoder's file, as optimum and transformers.js lay them out.

    Their names are transformers', but for matrices and the encoder's positions, which the exporter of PyTorch
    numbers: the nodes that use them show which is which. It also transposes the matrices.

    ``decoder``: with or without a past, or both merged.
    """
    with needs_extra("a model in ONNX files", "draft"):
        import onnx
    arrays: dict[str, StoredArray] = {}
    for path, prefix in ((encoder, f"{ENCODER}."), (decoder, "")):
        graph = onnx.load(path, load_external_data=False).graph
        found = {
            prefix + name: _stored(tensor, path.parent, is_transposed=is_transposed)
            for name, tensor, is_transposed in _named(graph)
        }
        if not any(len(each.shape) == 2 and name.endswith("proj.weight") for name, each in found.items()):
            raise CheckpointError(
                f"{path} has no matrices of float32 or float16: fetch the files that are not quantised."
            )
        arrays |= found
    return Weights(arrays)


def _named(graph: GraphProto) -> Iterator[tuple[str, TensorProto, bool]]:
    """Yield the weights of a graph and its branches: name, tensor, whether it is transposed."""
    tensors = {
        tensor.name: tensor
        for each in _graphs(graph)
        for tensor in each.initializer
        if tensor.data_type in FLOATS
    }
    for name, tensor in tensors.items():
        yield MERGED.sub("", name), tensor, False
    for node in (node for each in _graphs(graph) for node in each.node):
        used = tensors.get(node.input[1]) if len(node.input) == 2 else None
        if used is None or len(used.dims) != 2:
            continue
        if node.op_type == "MatMul" and (match := MATRIX_NODE.fullmatch(node.name)):
            yield match["path"].replace("/", ".") + ".weight", used, True
        elif node.op_type == "Add":
            yield "embed_positions.weight", used, False


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


class TransformersModel:
    is_quantised = False

    def __init__(self, files: ModelFiles, config: Mapping[str, Any]) -> None:
        self._files = files
        self._config = config

    @cached_property
    def sizes(self) -> ModelSizes:
        return read_sizes(self._files.name, self._config)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        return read_tokenizer(self._files)

    @property
    def generation(self) -> Generation:
        return read_generation(self._files.read(FILE), self._config)

    def weights(self) -> tuple[Weights, list[Path]]:
        paths = self._files.weights()
        if paths[0].suffix == ".onnx":
            return weights_in_onnx(paths[0], paths[1]), paths
        return weights_in_files(paths), paths


class FileFormat(StrEnum):
    """Formats of files that hold a model, whether they can be read or not."""

    CTRANSLATE2 = "CTranslate2"
    GGML = "ggml"
    GGUF = "GGUF"
    PYTORCH = "PyTorch"
    OLD_PYTORCH = "old PyTorch"
    SAFETENSORS = "safetensors"
    GIT_LFS = "Git LFS"


BEGINNINGS = {
    b"lmgg": FileFormat.GGML,
    b"GGUF": FileFormat.GGUF,
    b"PK\x03\x04": FileFormat.PYTORCH,  # a zip archive
    b"\x80\x02": FileFormat.OLD_PYTORCH,  # a pickle
    b"version https://git-lfs": FileFormat.GIT_LFS,
}


def format_of(path: Path) -> FileFormat | None:
    with path.open("rb") as file:
        first = file.read(64)
    for beginning, found in BEGINNINGS.items():
        if first.startswith(beginning):
            return found
    if first[8:9] == b"{":  # after the length of a header
        return FileFormat.SAFETENSORS
    num_bytes = int.from_bytes(first[4:6], "little")  # a version comes first, then the length of a name
    return FileFormat.CTRANSLATE2 if first[6 : 6 + num_bytes].endswith(b"Spec\0") else None


NO_MODEL = "isn't a model's file: name whisper.cpp's ggml-*.bin, OpenAI's .pt, a folder or a hub id"
NO_CTRANSLATE2 = (
    "isn't a CTranslate2 model, so it is empty, damaged or of another format: fetch or convert it again"
)
REFUSED = {
    FileFormat.GGUF: "is a GGUF file: name whisper.cpp's ggml-*.bin of the model, or a folder",
    FileFormat.CTRANSLATE2: "is a CTranslate2 model's weights: name the folder that holds it and config.json",
    FileFormat.OLD_PYTORCH: "is a pickle, which can carry code: save the model again as safetensors",
    FileFormat.SAFETENSORS: "is a safetensors file: name the folder that holds it and config.json",
    FileFormat.GIT_LFS: "stands for a file that Git LFS has not fetched: run git lfs pull in its folder",
}


# Files are read when a part is asked for.
StoredModel: TypeAlias = "CTranslate2Model | GgmlModel | OpenAIModel | TransformersModel"


def open_model(files: ModelFiles) -> StoredModel:
    """Return the model in files."""
    if files.file is not None:
        return _open_file(files.name, files.file)
    config = files.read(CONFIG)
    if config is None:
        raise OSError(f"it has no {CONFIG}")
    if "n_audio_state" in config:
        raise CheckpointError(
            f"Model '{files.name}' is in MLX's format, which is not supported: name another format of it, "
            "a folder of transformers or CTranslate2, whisper.cpp's ggml-*.bin, OpenAI's .pt or a hub id."
        )
    if "model_type" not in config:
        return CTranslate2Model(files, config, _ctranslate2_weights(files))
    if config["model_type"] != "whisper":
        raise CheckpointError(
            f"Model '{files.name}' is of type '{config['model_type']}': choose a Whisper checkpoint."
        )
    return TransformersModel(files, config)


def _ctranslate2_weights(files: ModelFiles) -> Path:
    path = files.find(MODEL_BIN)
    if path is None:
        raise files.no_weights(
            f"Model '{files.name}' has neither a model_type in its {CONFIG} nor CTranslate2's {MODEL_BIN}: "
            "fetch or convert it again."
        )
    found = format_of(path)
    if found is FileFormat.CTRANSLATE2:
        return path
    reason = REFUSED[found] if found is FileFormat.GIT_LFS else NO_CTRANSLATE2
    raise CheckpointError(f"The {MODEL_BIN} of model '{files.name}' {reason}.")


def _open_file(name: str, path: Path) -> StoredModel:
    found = format_of(path)
    if found is FileFormat.GGML:
        return GgmlModel(name, path)
    if found is FileFormat.PYTORCH:
        with needs_extra(f"'{name}', a file of PyTorch,", "server"):
            from specwhisper.model.pytorch.openai_file import OpenAIModel
        return OpenAIModel(name, path)
    reason = NO_MODEL if found is None else REFUSED[found]
    raise CheckpointError(f"'{name}' {reason}.")
