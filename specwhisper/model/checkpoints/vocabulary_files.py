"""Find a tokenizer on this machine for a model whose file holds none."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.model.checkpoints.names import fetched_folder
from specwhisper.model.checkpoints.published import ALIGNMENT_HEADS, special_tokens
from specwhisper.model.checkpoints.tokenizer import Tokenizer, read_tokenizer, tokenizer_of

PACKAGE = "openai-whisper"
REPOSITORIES = ("openai/whisper-{}", "Systran/faster-whisper-{}")


def find_tokenizer(name: str, num_tokens: int) -> Tokenizer:
    """Return the tokenizer of published models with as many tokens.

    Parameters
    ----------
    name : of the model, for errors.

    Raises
    ------
    CheckpointError : if there is none on this machine.
    ValueError : if no published model has as many tokens.
    """
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
