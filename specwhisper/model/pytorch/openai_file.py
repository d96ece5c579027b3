"""Read files of openai-whisper: sizes and weights, saved by PyTorch."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.generation import Generation
from specwhisper.model.checkpoints.ggml import config_of, transformers_name
from specwhisper.model.checkpoints.names import fetched_folder
from specwhisper.model.checkpoints.published import ALIGNMENT_HEADS, generation_of, special_tokens
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer, tokenizer_of
from specwhisper.model.checkpoints.weights import StoredArray, Weights

PACKAGE = "openai-whisper"
REPOSITORIES = ("openai/whisper-{}", "Systran/faster-whisper-{}")


def find_tokenizer(name: str, num_tokens: int) -> Tokenizer:
    """Return the tokenizer of published models with as many tokens."""
    special = special_tokens(num_tokens)
    for path in _rank_files():
        tokens = [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines()]
        if len(tokens) + len(special) == num_tokens:
            return tokenizer_of(tokens, special)
    models = [model for (*_, size), (model, _) in ALIGNMENT_HEADS.items() if size == num_tokens]
    for folder in _cached_folders(models):
        with suppress(CheckpointError):  # incomplete
            if (tokenizer := read_tokenizer(ModelFiles(str(folder)))) is not None:
                return tokenizer
    raise CheckpointError(
        f"Model '{name}' holds no tokenizer, and none of its kind is on this machine: install the package "
        f"{PACKAGE}, or fetch {REPOSITORIES[0].format(models[0])} from the hub."
    )


def _rank_files() -> Iterator[Path]:
    """Yield the lists of tokens in the package, which is not imported: its requirements may be missing."""
    with suppress(PackageNotFoundError):
        yield from (Path(str(file.locate())) for file in files(PACKAGE) or () if file.suffix == ".tiktoken")


def _cached_folders(models: list[str]) -> Iterator[Path]:
    """Yield the folders of published models that were fetched, or are in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    for model in models:
        if (folder := fetched_folder(model)).is_dir():
            yield folder
        for repository in REPOSITORIES:
            path = try_to_load_from_cache(repository.format(model), "tokenizer.json")
            if isinstance(path, str):
                yield Path(path).parent


class OpenAIModel:
    """A ``.pt`` file of openai-whisper."""

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
        return read_sizes(self._name, config_of(self._dimensions, len(self._state)), source="dims entry")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return find_tokenizer(self._name, self.sizes.vocab_size)

    @property
    def generation(self) -> Generation:
        return generation_of(self._name, self.sizes, self.tokenizer)

    def weights(self) -> tuple[Weights, list[Path]]:
        tensors = {transformers_name(str(name)): _stored(tensor) for name, tensor in self._state.items()}
        return Weights(tensors), [self._path]


def _stored(tensor: Any) -> StoredArray:
    if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
        raise ValueError("its model_state_dict holds something else than weights")
    bits = tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
    return StoredArray(tuple(tensor.shape), lambda: bits.clone().numpy())
