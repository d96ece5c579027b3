"""Small files of CTranslate2 and of whisper.cpp, with variables and tensors of any names."""

import struct

import numpy as np

from specwhisper.model.checkpoints.ctranslate2 import NUMBER_TYPES
from specwhisper.model.checkpoints.ggml import BLOCK, BLOCKS, DIMENSIONS

NUM_TOKENS = 51_864
# The fields of a block by type, as ggml declares them.
LAYOUTS = {2: "<e16s", 3: "<ee16s", 6: "<eI16s", 7: "<eeI16s", 8: "<e32s"}


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def tensor(name: str, type_: int, shape: tuple[int, ...], data: bytes) -> bytes:
    return ints(len(shape), len(name), type_, *reversed(shape)) + name.encode() + data


def ggml_file(*tensors: bytes, **dimensions: int) -> bytes:
    """Return a file of whisper.cpp with few tokens."""
    values = dict.fromkeys(DIMENSIONS, 1) | {"n_vocab": NUM_TOKENS, "n_audio_ctx": 1500} | dimensions
    tokens = ints(2, 1) + b"a" + ints(1) + b"b"
    return ints(0x67676D6C, *values.values(), 1, 2) + bytes(8) + tokens + b"".join(tensors)


def blocks_of(type_: int) -> bytes:
    """Return two random blocks with plain scales."""
    numbers = np.random.default_rng(type_).integers(0, 256, 2 * struct.calcsize(LAYOUTS[type_]), np.uint8)
    blocks = numbers.view(BLOCKS[type_])
    for field in ("scale", "minimum"):
        if field in (blocks.dtype.names or ()):
            blocks[field] = (0.5, -0.25)
    return blocks.tobytes()


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def ctranslate2_file(
    variables: dict[str, np.ndarray], *, spec: str = "WhisperSpec", shared: str = "decoder/embeddings/weight"
) -> bytes:
    """Return a ``model.bin``; the projection shares a variable."""
    data = struct.pack("<I", 6) + string(spec) + struct.pack("<II", 3, len(variables))
    for name, array in variables.items():
        type_ = [np.dtype(each) for each in NUMBER_TYPES].index(array.dtype)
        data += string(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        data += struct.pack("<BI", type_, array.nbytes) + array.tobytes()
    return data + struct.pack("<I", 1) + string("decoder/projection/weight") + string(shared)


CTRANSLATE2_FILE = ctranslate2_file(
    {"a/weight": np.ones((2, 3), np.int8), "a/weight_scale": np.ones(2, np.float32)}, shared="a/weight"
)
GGML_FILE = ggml_file(
    *(tensor(f"decoder.{type_}", type_, (2, BLOCK), blocks_of(type_)) for type_ in LAYOUTS),
    tensor("encoder.conv1.bias", 0, (2, 1), bytes(8)),
    tensor("encoder.conv1.weight", 1, (2, 1, 3), bytes(12)),
)
