"""Metadata of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specwhisper.errors import InvalidRequest


def metadata_of(model: str | Path) -> Mapping[str, str]:
    """Return the properties that the file's author added.

    Raises
    ------
    InvalidRequest : if onnxruntime cannot read the file.
    """
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many
        raise InvalidRequest(f"{model} is not a model that onnxruntime can read ({error}).") from error
    return dict(session.get_modelmeta().custom_metadata_map)
