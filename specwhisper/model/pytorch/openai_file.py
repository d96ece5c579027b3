"""Read files of openai-whisper: sizes and weights, saved by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.generation import Generation
from specwhisper.model.checkpoints.openai_names import config_of, transformers_name
from specwhisper.model.checkpoints.published import generation_of
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer
from specwhisper.model.checkpoints.vocabulary_files import find_tokenizer
from specwhisper.model.checkpoints.weights import Weights


class OpenAIModel:
    """A ``.pt`` file of openai-whisper.

    Raises
    ------
    CheckpointError : for a PyTorch file that holds something else.
    """

    is_quantised = False

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except UnpicklingError as error:
            raise CheckpointError(
                f"'{name}' is a damaged PyTorch file, or holds more than weights and so may run code: fetch "
                "it again, or save the model as safetensors."
            ) from error
        except RuntimeError as error:  # with several sentences about causes
            reason = str(error).split(". ")[0]
            raise CheckpointError(f"'{name}' is truncated or damaged ({reason}): fetch it again.") from error
        parts = content if isinstance(content, dict) else {}
        dimensions, state = parts.get("dims"), parts.get("model_state_dict")
        if not (isinstance(dimensions, Mapping) and isinstance(state, Mapping)):
            raise CheckpointError(
                f"'{name}' is a PyTorch file, but not openai-whisper's: save the model as safetensors."
            )
        self._dimensions, self._state = dimensions, state

    @cached_property
    def sizes(self) -> ModelSizes:
        """The sizes in the file."""
        return read_sizes(self._name, config_of(self._dimensions, len(self._state)), source="dims entry")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of published models with as many tokens."""
        return find_tokenizer(self._name, self.sizes.vocab_size)

    @property
    def generation(self) -> Generation:
        """The values of generation, of which the file states none."""
        return generation_of(self._name, self.sizes, self.tokenizer)

    def weights(self) -> tuple[Weights, list[Path]]:
        """Return the weights by transformers' names, and their file."""
        tensors = {transformers_name(str(name)): _Stored(tensor) for name, tensor in self._state.items()}
        return Weights(tensors), [self._path]


class _Stored:
    """A tensor in a file that is mapped into memory."""

    def __init__(self, tensor: Any) -> None:
        if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
            raise ValueError("its model_state_dict holds something else than weights")
        self.shape = tuple(tensor.shape)
        self._tensor = tensor

    def read(self) -> NDArray[Any]:
        """Return a copy of the numbers."""
        tensor = self._tensor.clone()
        array: NDArray[Any] = (
            tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
        ).numpy()
        return array
