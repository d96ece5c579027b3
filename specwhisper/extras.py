"""Packages beside the core: what they offer, and the error if a library of theirs is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from specwhisper.errors import InvalidRequest, MissingExtra


@cache  # finding them takes milliseconds
def offers(group: str) -> Mapping[str, EntryPoint]:
    """Return what installed packages offer to a program, by name.

    ``group``: entry points ``specwhisper.GROUP``. "commands" are called with the Typer application of
    ``specwhisper``, to which they add commands. "exports" are names that ``specwhisper`` exports.
    "draft_settings" and "gateway_settings" are a :class:`Part` each, whose flags the program has and
    whose value is in ``extras`` of its settings. "drafts" are called with a draft server's settings, and
    return what loads a draft of another kind than a Whisper model, or ``None``. "draft_services" are
    called with its service and settings, and return further gRPC services by name: what adds each to a
    server. "speaker_options" are a :class:`Part` each for ``transcribe`` and ``listen``: options of the
    command, and what finds speakers.
    """
    return {entry.name: entry for entry in entry_points(group=f"specwhisper.{group}")}


@contextmanager
def needs_extra(user: str, extras: str, *, otherwise: str = "") -> Iterator[None]:
    """Import packages of an extra in the context; raise :class:`MissingExtra` if one is not installed.

    Parameters
    ----------
    user : what needs them: the subject of the sentence.
    extras : as pip reads them, with commas.
    otherwise : what to do without them, for example ``"or try --simulate FILE"``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0].replace("_", "-")
        if package.startswith("specwhisper"):
            raise  # one of our own: no extra installs it
        how = f"pip install 'specwhisper[{extras}]'" + (f", {otherwise}" if otherwise else "")
        raise MissingExtra(f"{user} needs {package}: {how}.") from error


def metadata_of(model: str | Path) -> Mapping[str, str]:
    """Return the properties that the author of an ONNX file added.

    Raise :class:`InvalidRequest` if onnxruntime cannot read the file.
    """
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many
        raise InvalidRequest(f"{model} is not a model that onnxruntime can read ({error}).") from error
    return dict(session.get_modelmeta().custom_metadata_map)
