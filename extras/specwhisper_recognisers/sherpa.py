"""Streaming models of sherpa-onnx as drafts.

``--draft-recogniser specwhisper_recognisers.sherpa:create --draft-model FOLDER``, where the
folder holds ``tokens.txt`` and a streaming transducer (``encoder*.onnx``, ``decoder*.onnx``,
``joiner*.onnx``) or a streaming CTC model (``*.onnx``, of Zipformer2 or NeMo), as sherpa-onnx publishes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specwhisper.audio.canonical import floats
from specwhisper.errors import InvalidRequest
from specwhisper.extras import metadata_of, needs_extra
from specwhisper.types import SAMPLE_RATE
from specwhisper_recognisers.protocol import Recognised

TRANSDUCER = ("encoder", "decoder", "joiner")
TRIAL = """import json, sys, sherpa_onnx
kind, arguments = json.loads(sys.argv[1])
getattr(sherpa_onnx.OnlineRecognizer, kind)(**arguments)"""
END_PADDING = np.zeros(SAMPLE_RATE // 2, np.float32)  # so that the last words leave the encoder


def create(model: str) -> SherpaRecogniser:
    """Load a folder's model.

    Raises
    ------
    MissingExtra : if sherpa-onnx is not installed.
    InvalidRequest : if the folder holds no streaming model, or one that sherpa-onnx cannot use.
    """
    folder = Path(model)
    with needs_extra("This recogniser", "sherpa"):
        import sherpa_onnx
    kind, files = _files(folder)
    arguments = files | {"num_threads": 1, "enable_endpoint_detection": True}
    # sherpa-onnx ends the process if it cannot use a model, so another process tries it first.
    tried = subprocess.run(
        [sys.executable, "-c", TRIAL, json.dumps([kind, arguments])],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2] or f"exit status {tried.returncode}"
        raise InvalidRequest(f"--draft-model {model} cannot be used by sherpa-onnx ({reason}).")
    return SherpaRecogniser(folder.name, getattr(sherpa_onnx.OnlineRecognizer, kind)(**arguments))


class SherpaRecogniser:
    """A streaming model, which serves many sessions; see :class:`Recogniser`."""

    def __init__(self, name: str, recognizer: Any) -> None:
        self.name = name
        self._recognizer = recognizer

    def open(self, language: str | None, start_s: float, *, is_live: bool) -> SherpaStream:
        """Begin a stream; the model has its own language."""
        return SherpaStream(self._recognizer)


class SherpaStream:
    """A stream of a streaming model; see :class:`RecogniserStream`."""

    def __init__(self, recognizer: Any) -> None:
        self._recognizer = recognizer
        self._stream = recognizer.create_stream()
        self._text = ""

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool, waiting_s: float) -> Sequence[Recognised]:
        """Take audio; return the utterance as far as it is recognised, if it has changed."""
        recognizer, stream = self._recognizer, self._stream
        stream.accept_waveform(SAMPLE_RATE, floats(pcm))
        if is_last:
            stream.accept_waveform(SAMPLE_RATE, END_PADDING)
            stream.input_finished()
        while recognizer.is_ready(stream):
            recognizer.decode_stream(stream)
        text = recognizer.get_result(stream).strip()
        changed = []
        if text != self._text:
            first_s = next(iter(recognizer.timestamps(stream)), 0.0)
            changed = [Recognised(recognizer.start_time(stream) + first_s, _cased(text))]
        self._text = text
        if recognizer.is_endpoint(stream):
            recognizer.reset(stream)
            self._text = ""
        return changed


def _cased(text: str) -> str:
    """Return upper-case text as Whisper would write most of it."""
    return text.capitalize() if text.isupper() else text


def _files(folder: Path) -> tuple[str, dict[str, str]]:
    """Return a model's constructor, and its files by the constructor's parameters."""
    tokens = folder / "tokens.txt"
    if not tokens.is_file():
        raise InvalidRequest(
            f"--draft-model {folder} is not a model of sherpa-onnx: name a folder that holds tokens.txt."
        )
    parts = {name: _file(folder, f"{name}*.onnx") for name in TRANSDUCER}
    if all(parts.values()):
        return "from_transducer", {"tokens": str(tokens), **parts}
    whole = _file(folder, "*.onnx")
    metadata = metadata_of(whole) if whole else {}
    if metadata.get("model_type") == "zipformer2":
        return "from_zipformer2_ctc", {"tokens": str(tokens), "model": whole}
    if "cache_last_channel_dim1" in metadata:
        return "from_nemo_ctc", {"tokens": str(tokens), "model": whole}
    raise InvalidRequest(
        f"--draft-model {folder} holds no streaming model that is known here: no transducer, nor CTC of "
        "Zipformer2 or NeMo."
    )


def _file(folder: Path, pattern: str) -> str:
    """Return the file of a pattern, preferably quantized; empty if there is none."""
    found = sorted(folder.glob(pattern), key=lambda path: (".int8" not in path.name, path.name))
    return str(found[0]) if found else ""
