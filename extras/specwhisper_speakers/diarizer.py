"""Find the turns of speakers in recordings, with models of sherpa-onnx."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import cast

from specwhisper.audio import turns as decoding
from specwhisper.audio.inputs import Audio, Decode, decoder_of
from specwhisper.errors import DiarizationFailed, InvalidRequest
from specwhisper.extras import metadata_of, needs_extra
from specwhisper.transcription.speakers import Turn
from specwhisper_speakers.voices import DEFAULT_THRESHOLD, named, names_of, sample_of

WORKER = "specwhisper_speakers.worker"
SEGMENTATION = "receptive_field_shift"  # in the metadata of a model for segmentation only
EMBEDDING = "output_dim"  # in that of a model for embeddings only


class Diarizer:
    """Finds who speaks when.

    The models are loaded for each recording, in a process of its own.

    Parameters
    ----------
    folder : holds two models as sherpa-onnx publishes them, at any depth: one for speaker segmentation
        (pyannote's or reverb's) and one for speaker embeddings.
    num_speakers : how many speak; by default they are counted.
    threshold : distance at which two voices are two speakers, unless ``num_speakers`` is set; larger values
        find fewer speakers.
    num_threads : CPU threads that the models use.

    Raises
    ------
    MissingExtra : if sherpa-onnx is not installed.
    InvalidRequest : if the folder does not hold one model of each kind that can be used, or a value is out of
        range.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        num_speakers: int | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        num_threads: int = 1,
    ) -> None:
        if num_speakers is not None and num_speakers < 1:
            raise InvalidRequest(f"num_speakers is {num_speakers}: it must be at least 1, or left out.")
        self._command = worker_command(
            Path(folder), threshold=threshold, num_threads=num_threads, num_speakers=num_speakers
        )
        self._threshold = threshold
        self._samples: dict[str, bytes] = {}

    def knowing(self, samples: Mapping[str, Audio]) -> Diarizer:
        """Return a diarizer that names speakers by a recording of each one's voice alone; 2 to 10 s are best.

        Voices that are nearer than ``threshold`` to none of them are A, B, ... as without samples.

        Raises
        ------
        InvalidRequest, InvalidAudio : if a name is empty, a sample cannot be decoded, or is too short.
        """
        informed = copy.copy(self)
        informed._samples = {name: sample_of(name, audio) for name, audio in samples.items()}
        return informed

    def turns(self, audio: Audio) -> tuple[Turn, ...]:
        """Return the turns of a file, an open file or an array of 16 kHz mono samples, by their start.

        Raises
        ------
        InvalidAudio : if the recording cannot be decoded.
        InvalidRequest : if a speaker's sample has too little speech.
        DiarizationFailed : if the process ends before it has found them.
        """
        pcm = b"".join((*self._samples.values(), *decoder_of(audio)()))
        run = subprocess.run(self._with_samples(), input=pcm, capture_output=True, check=False)
        return self._turns(run.returncode, run.stdout, run.stderr)

    async def turns_of(self, decode: Decode) -> tuple[Turn, ...]:
        """Return the turns of a recording, which ``decode`` yields as canonical PCM.

        Cancelling ends the process.
        """
        process = await asyncio.create_subprocess_exec(
            *self._with_samples(), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        try:
            await _feed(cast(asyncio.StreamWriter, process.stdin), chain(self._samples.values(), decode()))
            out, err = await process.communicate(b"")
            return self._turns(await process.wait(), out, err)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _with_samples(self) -> tuple[str, ...]:
        """Return the command of a process that reads the samples before the recording."""
        return (*self._command, *map(str, map(len, self._samples.values())))

    def _turns(self, status: int, out: bytes, err: bytes) -> tuple[Turn, ...]:
        if status:
            raise failure(status, err)
        answer = json.loads(out)
        samples = dict(zip(self._samples, answer["samples"], strict=True))
        for name, embedding in samples.items():
            if embedding is None:
                raise InvalidRequest(
                    f"The sample of speaker '{name}' has too little speech: use 2 to 10 s of this voice."
                )
        voices = {int(number): embedding for number, embedding in answer["voices"].items()}
        return named(answer["turns"], names_of(voices, samples, self._threshold))


def worker_command(
    folder: Path,
    *,
    threshold: float,
    num_threads: int,
    num_speakers: int | None = None,
    is_live: bool = False,
) -> tuple[str, ...]:
    """Return the command of a process that finds speakers with a folder's models."""
    if not 0.0 < threshold < 2.0:
        raise InvalidRequest(f"threshold is {threshold:g}: it must be between 0 and 2.")
    with needs_extra("Speaker diarization", "sherpa"):
        import sherpa_onnx  # noqa: F401  # the worker loads it
    segmentation, embedding = _models_in(folder)
    settings = {
        "segmentation": segmentation,
        "embedding": embedding,
        "num_speakers": -1 if num_speakers is None else num_speakers,
        "threshold": threshold,
        "num_threads": num_threads,
        "is_live": is_live,
    }
    command = (sys.executable, "-m", WORKER, json.dumps(settings))
    run = subprocess.run(command, input=b"", capture_output=True, check=False)
    if run.returncode:  # only sherpa-onnx knows whether it can use them
        error = failure(run.returncode, run.stderr)
        raise InvalidRequest(f"sherpa-onnx cannot use the models in {folder}. {error}")
    return command


def failure(status: int, err: bytes) -> DiarizationFailed:
    """Return why a process has ended, from its exit status and standard error."""
    reason = err.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {status}"
    return DiarizationFailed(f"The process that finds speakers has ended: {reason}.")


async def _feed(stdin: asyncio.StreamWriter, pieces: Iterator[bytes]) -> None:
    """Write a recording to a process as fast as it reads; it is decoded in turns with others."""
    turn = decoding.Turn()
    with suppress(BrokenPipeError, ConnectionResetError):  # the process has ended: its status has the reason
        while (piece := await decoding.in_turn(turn, next, pieces, None)) is not None:
            stdin.write(piece)
            await stdin.drain()


def _models_in(folder: Path) -> tuple[str, str]:
    """Find the models for segmentation and for embeddings, preferably those that are not quantized."""
    found: dict[str, str] = {}
    unreadable = ""
    for path in sorted(folder.rglob("[!.]*.onnx"), key=lambda path: (".int8" in path.name, path)):
        try:
            metadata = metadata_of(path)
        except InvalidRequest as error:
            unreadable = unreadable or f" {error}"
            continue
        for kind in (SEGMENTATION, EMBEDDING):
            if kind in metadata:
                found.setdefault(kind, str(path))
    for kind, name in ((SEGMENTATION, "speaker segmentation"), (EMBEDDING, "speaker embeddings")):
        if kind not in found:
            raise InvalidRequest(
                f"{folder} holds no model for {name}: it needs two of sherpa-onnx, one for speaker "
                f"segmentation and one for speaker embeddings.{unreadable}"
            )
    return found[SEGMENTATION], found[EMBEDDING]
