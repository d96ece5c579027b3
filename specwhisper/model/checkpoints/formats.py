"""Open a model in its format, which is seen by content and not by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from specwhisper.errors import CheckpointError
from specwhisper.extras import needs_extra
from specwhisper.model.checkpoints.ctranslate2 import CTranslate2Model
from specwhisper.model.checkpoints.files import CONFIG, MODEL_BIN, ModelFiles
from specwhisper.model.checkpoints.generation import Generation
from specwhisper.model.checkpoints.ggml import GgmlModel
from specwhisper.model.checkpoints.magic import FileFormat, format_of
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer
from specwhisper.model.checkpoints.transformers_files import TransformersModel
from specwhisper.model.checkpoints.weights import Weights

NO_MODEL = "is no model's file: name whisper.cpp's ggml-*.bin, OpenAI's .pt, a folder or a hub id"
NO_CTRANSLATE2 = (
    "is no CTranslate2 model, so it is empty, damaged or of another format: fetch or convert it again"
)
# A model of CTranslate2 has some of these fields in its config.json, or one of these files.
CTRANSLATE2_FIELDS = {"suppress_ids", "suppress_ids_begin", "lang_ids", "alignment_heads"}
VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
REFUSED = {
    FileFormat.GGUF: "is a GGUF file: name whisper.cpp's ggml-*.bin of the model, or a folder",
    FileFormat.CTRANSLATE2: "is a CTranslate2 model's weights: name the folder that holds it and config.json",
    FileFormat.OLD_PYTORCH: "is a pickle, which can carry code: save the model again as safetensors",
    FileFormat.SAFETENSORS: "is a safetensors file: name the folder that holds it and config.json",
    FileFormat.GIT_LFS: "stands for a file that Git LFS has not fetched: run git lfs pull in its folder",
}


class StoredModel(Protocol):
    """A model in one format. Files are read when a part is asked for."""

    @property
    def is_quantised(self) -> bool:
        """Whether matrices were rounded to integers: they are other weights now."""

    @property
    def sizes(self) -> ModelSizes:
        """The model's sizes."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; ``None`` if it has none."""

    @property
    def generation(self) -> Generation:
        """The values of generation; those of published models where it states none."""

    def weights(self) -> tuple[Weights, list[Path]]:
        """Return the weights by transformers' names, and their files."""


def open_model(files: ModelFiles) -> StoredModel:
    """Return the model in files.

    Raises
    ------
    CheckpointError : for files of another format.
    OSError : without a config.json.
    """
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
    if "model_type" not in config and (path := _ctranslate2(files, config)) is not None:
        return CTranslate2Model(files, config, path)
    if config.get("model_type") != "whisper":
        raise CheckpointError(
            f"Model '{files.name}' is of type '{config.get('model_type')}': choose a Whisper checkpoint."
        )
    return TransformersModel(files, config)


def _ctranslate2(files: ModelFiles, config: Mapping[str, Any]) -> Path | None:
    """Return the weights of a CTranslate2 model; ``None`` for another."""
    path = files.find(MODEL_BIN)
    if path is None:
        if config.keys().isdisjoint(CTRANSLATE2_FIELDS) and not any(map(files.find, VOCABULARIES)):
            return None
        raise files.no_weights(
            f"CTranslate2 model '{files.name}' has no {MODEL_BIN}: fetch or convert it again."
        )
    found = format_of(path)
    if found is FileFormat.CTRANSLATE2:
        return path
    reason = REFUSED[found] if found is FileFormat.GIT_LFS else NO_CTRANSLATE2
    raise CheckpointError(f"The {MODEL_BIN} of model '{files.name}' {reason}.")


def _open_file(name: str, path: Path) -> StoredModel:
    """Return the model in a single file."""
    found = format_of(path)
    if found is FileFormat.GGML:
        return GgmlModel(name, path)
    if found is FileFormat.PYTORCH:
        with needs_extra(f"'{name}', a file of PyTorch,", "server"):
            from specwhisper.model.pytorch.openai_file import OpenAIModel
        return OpenAIModel(name, path)
    reason = NO_MODEL if found is None else REFUSED[found]
    raise CheckpointError(f"'{name}' {reason}.")
