"""Find a model's files in a folder or on the hub, or report why one cannot be used."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from specwhisper.errors import CheckpointError, MissingExtra
from specwhisper.model.checkpoints.names import resolve

CONFIG, WEIGHTS, WEIGHTS_INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MODEL_BIN = "model.bin"  # CTranslate2's weights
# As optimum names them; transformers.js has them in a folder of their own, in several precisions.
ENCODERS, DECODERS = ("encoder_model",), ("decoder_model_merged", "decoder_model")
ONNX_FOLDERS, ONNX_SUFFIXES = ("", "onnx/"), ("", "_fp16")
COMMIT = re.compile(r"[0-9a-f]{40}")


class ModelFiles:
    """The files of a model.

    Files of the hub are in the cache that transformers uses; one that is missing there is downloaded. All are
    of the commit that the revision named when the first one was found.

    Parameters
    ----------
    name : what the user wrote; see :func:`specwhisper.model.checkpoints.names.resolve`.
    revision : branch, tag or commit on the hub.

    Attributes
    ----------
    file : the model's only file; ``None`` if it is a folder, or on the hub.
    """

    def __init__(self, name: str, revision: str | None = None) -> None:
        self.name = name
        self._source = _snapshot_in(resolve(name, revision), revision or "main")
        self.file = path if (path := Path(self._source)).is_file() else None
        self._is_folder = path.is_dir()
        self._revision = revision or "main"
        self._may_lack = False  # a file that the hub has, since it could not be asked
        if self._is_folder and not (path / CONFIG).is_file():
            raise CheckpointError(f"Folder '{name}' holds no model: it has no config.json; name another.")

    def find(self, file: str) -> Path | None:
        if self._is_folder:
            path = Path(self._source, file)
            return path if path.is_file() else None
        cached = self._fetch(file)
        if cached is not None and COMMIT.fullmatch(cached.parent.name):
            self._revision = cached.parent.name
        return cached

    def _fetch(self, file: str) -> Path | None:
        """Return a file of the hub from the cache, or download it."""
        # Models in folders do not need it.
        from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        cached = try_to_load_from_cache(self._source, file, revision=self._revision)
        if COMMIT.fullmatch(self._revision):  # never changes, so the hub need not be asked
            if cached is _CACHED_NO_EXIST:  # the hub has no such file
                return None
            if cached is not None:
                return Path(cached)
        try:
            if cached is None and (self._may_lack or not self._answers(file)):
                raise LocalEntryNotFoundError(file)
            return Path(hf_hub_download(self._source, file, revision=self._revision))
        except LocalEntryNotFoundError as error:
            if file == CONFIG:
                raise OSError("the hub cannot be reached, and the model is not in the cache") from error
            self._may_lack = True
        except EntryNotFoundError:
            pass
        except GatedRepoError as error:
            raise OSError("only accounts that the hub has granted access may download it") from error
        except RepositoryNotFoundError as error:
            raise OSError("the hub has no such model, or it is private") from error
        except RevisionNotFoundError as error:
            raise OSError(f"it has no revision '{self._revision}'") from error
        return None

    def _answers(self, file: str) -> bool:
        """Return whether the hub answers, at the first try; a download would try for half a minute."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError

        try:
            get_hf_file_metadata(hf_hub_url(self._source, file, revision=self._revision))
        except HfHubHTTPError:
            return True
        except Exception:  # from the library below, which has changed before
            return False
        return True

    def read(self, file: str) -> dict[str, Any] | None:
        path = self.find(file)
        if path is None:
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is not JSON") from error
        if not isinstance(content, dict):
            raise ValueError(f"{file} holds no object")
        return content

    def weights(self) -> list[Path]:
        """Return the files of weights.

        They are safetensors files in name order, or the encoder's and the decoder's ONNX file, with files
        that these refer to. A single safetensors file is used even if there is an index, as transformers
        does.
        """
        if (path := self.find(WEIGHTS)) is not None:
            return [path]
        if (index := self.read(WEIGHTS_INDEX)) is None:
            if not (onnx_files := self._onnx_files()):
                raise self.no_weights()
            return onnx_files
        names = sorted(set(index["weight_map"].values()))
        paths = [self.find(name) if Path(name).name == name else None for name in names]
        if None in paths:
            raise ValueError(f"there is no file {names[paths.index(None)]}, which its index names")
        return [path for path in paths if path is not None]

    def _onnx_files(self) -> list[Path]:
        """Return the most precise files in the layout of optimum or transformers.js."""
        for folder, suffix in product(ONNX_FOLDERS, ONNX_SUFFIXES):
            names = [[f"{folder}{name}{suffix}.onnx" for name in names] for names in (ENCODERS, DECODERS)]
            found = [next(filter(None, map(self.find, alternatives)), None) for alternatives in names]
            if None not in found:
                models = [path for path in found if path is not None]
                data = (self.find(f"{folder}{path.name}_data") for path in models)
                return [*models, *filter(None, data)]
        return []

    @contextmanager
    def errors_reported(self) -> Iterator[None]:
        """Turn any error into a :class:`CheckpointError` of one sentence.

        :class:`MissingExtra` stays.
        """
        try:
            yield
        except (CheckpointError, MissingExtra):
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            remedy = (
                "fetch or save it again"
                if self._is_folder or self.file is not None
                else "check name and connection, or name a folder"
            )
            raise CheckpointError(
                f"Model '{self.name}' cannot be loaded from {self._source} ({lines[0].removesuffix('.')}): "
                f"{remedy}."
            ) from error

    def no_weights(self, message: str | None = None) -> CheckpointError:
        """Return the error for weights that are not found.

        ``message``: used unless the hub could not be asked for them.
        """
        if self._may_lack:
            return CheckpointError(
                f"The weights of model '{self.name}' are not in the cache, and the hub cannot be reached: "
                "check the connection, or name a folder."
            )
        if message is not None:
            return CheckpointError(message)
        if self._is_folder and any(Path(self._source).glob("**/encoder_model*.onnx")):
            return CheckpointError(
                f"Model '{self.name}' has no ONNX files of encoder and decoder in float32, or of both in "
                "float16: fetch those that are not quantised."
            )
        if self._is_folder and any(Path(self._source).glob("pytorch_model*.bin")):
            return CheckpointError(
                f"Model '{self.name}' has pickled weights, which can carry code: save it again as "
                "safetensors."
            )
        return CheckpointError(f"Model '{self.name}' has no weights: fetch or save it again as safetensors.")


def _snapshot_in(source: str, revision: str) -> str:
    """Return the folder of a revision if the source is one model's folder in the hub's cache."""
    root = Path(source)
    snapshots, ref = root / "snapshots", root / "refs" / revision
    if not snapshots.is_dir():
        return source
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    if not COMMIT.fullmatch(commit) or not (snapshots / commit).is_dir():
        raise CheckpointError(f"'{source}' holds no snapshot of revision '{revision}': fetch it again.")
    return str(snapshots / commit)


def digest_of(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
