"""Read models as transformers saves them, or optimum as ONNX files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.generation import FILE, Generation, read_generation
from specwhisper.model.checkpoints.onnx_weights import weights_in_onnx
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer
from specwhisper.model.checkpoints.weights import Weights, weights_in_files


class TransformersModel:
    """A model with a config.json of transformers."""

    is_quantised = False

    def __init__(self, files: ModelFiles, config: Mapping[str, Any]) -> None:
        self._files = files
        self._config = config

    @cached_property
    def sizes(self) -> ModelSizes:
        """The sizes in config.json."""
        return read_sizes(self._files.name, self._config)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer in its files."""
        return read_tokenizer(self._files)

    @property
    def generation(self) -> Generation:
        """The values in generation_config.json, or in an old config.json."""
        return read_generation(self._files.read(FILE), self._config)

    def weights(self) -> tuple[Weights, list[Path]]:
        """Return the weights of safetensors or ONNX files."""
        paths = self._files.weights()
        if paths[0].suffix == ".onnx":
            return weights_in_onnx(paths[0], paths[1]), paths
        return weights_in_files(paths), paths
