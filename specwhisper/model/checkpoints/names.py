"""Names of models: bundled ones, openai/whisper's, hub ids, folders and files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from specwhisper.errors import CheckpointError

DEMO_FOLDER = Path(__file__).parents[2] / "demo"
DEMO_MODELS = ("demo-target", "demo-draft-tiny", "demo-draft-distil")
OPENAI_MODELS = (
    *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
    *("large-v1", "large-v2", "large-v3", "large-v3-turbo"),
)
# Names of openai/whisper and faster-whisper; on the hub "whisper-large" is the first version.
OTHER_NAMES = {"large": "large-v3", "turbo": "large-v3-turbo"}
FILE_SUFFIXES = (".bin", ".pt")  # a model in one file ends so
CACHED = "models--"  # begins the name of a model's folder in the cache of huggingface_hub
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def fetched_folder(name: str) -> Path:
    """Return where ``specwhisper models get`` keeps a model: below $SPECWHISPER_HOME."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "specwhisper")
    return Path(os.environ.get("SPECWHISPER_HOME", cache), "models", name).expanduser()


def resolve(name: str, revision: str | None = None) -> str:
    """Return the hub id, folder or file of a model's name.

    ``revision``: the hub's; without it, a model that was fetched before is taken.
    """
    if name in DEMO_MODELS:
        if revision is not None:
            raise CheckpointError(f"'{name}' is bundled and has no revision '{revision}': leave it out.")
        folder = DEMO_FOLDER / name.removeprefix("demo-")
        if not folder.is_dir():
            raise CheckpointError(
                f"Model '{name}' comes with the source tree, not with the installed package: {_advice()}"
            )
        return str(folder)
    full_name = OTHER_NAMES.get(name, name)
    if Path(name).is_file() and full_name not in OPENAI_MODELS:
        return name
    if Path(name).is_dir():
        return name
    if name.endswith(FILE_SUFFIXES) or ("/" in name and not HUB_ID.fullmatch(name)):
        raise CheckpointError(f"The file or folder '{name}' does not exist: check the path, or {_advice()}")
    if HUB_ID.fullmatch(name):
        return name
    if full_name in OPENAI_MODELS:
        if revision is None and (folder := fetched_folder(full_name)).is_dir():
            return str(folder)
        return f"openai/whisper-{full_name.removesuffix('-v1')}"
    if name.startswith("distil-"):
        return f"distil-whisper/{name}"
    raise CheckpointError(f"There is no model '{name}': {_advice()}")


def public_name(name: str) -> str:
    """Return what clients may know of a model's name: the last part of a path."""
    path = Path(name)
    if not path.exists() or name in (*DEMO_MODELS, *OPENAI_MODELS, *OTHER_NAMES):
        return name
    path = path.resolve()
    if path.parent.name == "snapshots" and path.parents[1].name.startswith(CACHED):
        return path.parents[1].name.removeprefix(CACHED).replace("--", "/")
    return path.name or name


def _advice() -> str:
    bundled = (name for name in DEMO_MODELS if (DEMO_FOLDER / name.removeprefix("demo-")).is_dir())
    return (
        "name a folder, a file (whisper.cpp's ggml-*.bin or OpenAI's .pt), a hub id such as "
        "openai/whisper-small or onnx-community/whisper-tiny, distil-..., or one of "
        f"{', '.join((*bundled, *OPENAI_MODELS, *OTHER_NAMES))}."
    )
