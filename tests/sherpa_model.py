"""A tiny streaming model of sherpa-onnx: it writes a word for every 40 ms of loud audio.

An LSTM transducer as sherpa-onnx expects it, without an LSTM: the encoder is the mean of nine frames, and the
joiner is loud or silent.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = ("<blk>", "▁HELLO", "<unk>")
WIDTH = 4
FRAMES, SHIFT = 9, 4  # mel frames of an encoder call, and between two
LOUDNESS = -5.0  # mean log-mel energy above which audio is loud


def write_model(folder: Path) -> Path:
    """Write the model's files; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(WORDS)))
    states = [floats(f"{old}{i}", [1, "N", 2]) for old in ("old", "new") for i in range(2)]
    save_onnx(
        folder / "encoder.onnx",
        [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=1),
            helper.make_node("MatMul", ["mean", "ones"], ["encoder_out"]),
            *(helper.make_node("Identity", [f"old{i}"], [f"new{i}"]) for i in range(2)),
        ],
        inputs=[floats("x", ["N", FRAMES, 80]), *states[:2]],
        outputs=[floats("encoder_out", ["N", 1, WIDTH]), *states[2:]],
        weights={"ones": np.full((1, WIDTH), 1 / WIDTH)},
        model_type="lstm",
        num_encoder_layers=1,
        T=FRAMES,
        decode_chunk_len=SHIFT,
        rnn_hidden_size=2,
        d_model=2,
    )
    save_onnx(
        folder / "decoder.onnx",
        [
            helper.make_node("Gather", ["embeddings", "y"], ["embedded"], axis=0),
            helper.make_node("ReduceMean", ["embedded"], ["decoder_out"], axes=[1], keepdims=0),
        ],
        inputs=[helper.make_tensor_value_info("y", TensorProto.INT64, ["N", 2])],
        outputs=[floats("decoder_out", ["N", WIDTH])],
        weights={"embeddings": np.zeros((len(WORDS), WIDTH))},
        vocab_size=len(WORDS),
        context_size=2,
    )
    save_onnx(
        folder / "joiner.onnx",
        [
            helper.make_node("Add", ["encoder_out", "decoder_out"], ["sum"]),
            helper.make_node("MatMul", ["sum", "to_words"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["logit"]),
        ],
        inputs=[floats(name, ["N", WIDTH]) for name in ("encoder_out", "decoder_out")],
        outputs=[floats("logit", ["N", len(WORDS)])],
        weights={
            "to_words": np.outer(np.ones(WIDTH), [0, 1, 0]),
            "bias": np.array([LOUDNESS, 0, -1_000]),
        },
        joiner_dim=WIDTH,
    )
    return folder


def floats(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save_onnx(path: Path, nodes, *, inputs, outputs, weights, **metadata: object) -> None:
    """Write a graph with the metadata from which sherpa-onnx knows a model."""
    initializers = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, {name: str(value) for name, value in metadata.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)
