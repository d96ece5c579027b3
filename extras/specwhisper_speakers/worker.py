"""Find the turns of speakers with sherpa-onnx, in a process of its own.

sherpa-onnx keeps Python's lock while it works, for minutes in a long recording, and ends the process if it
cannot use a model. The process reads 16-bit PCM at 16 kHz on standard input.

It reads all of a recording, after the samples of speakers, whose numbers of bytes are its arguments. It
writes one JSON object: ``turns`` (start and end in seconds, number of the speaker), and if there are samples,
``voices`` (embedding by number) and ``samples`` (embedding of each; null of one with too little speech, and
then no recording is read).

It reads live audio one piece after the other, each after its number of bytes (4 bytes, little-endian), and
writes a line of JSON for each: ``turns`` and ``voices`` of the piece.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sherpa_onnx
from numpy.typing import NDArray

from specwhisper.audio.canonical import floats
from specwhisper.types import SAMPLE_RATE

MIN_SPEECH_S, MIN_PAUSE_S = 0.3, 0.5  # shortest turn, and pause within a turn: sherpa-onnx's defaults
Turns = list[tuple[float, float, int]]


def main() -> None:
    settings = json.loads(sys.argv[1])
    find = load(settings)
    if not settings["is_live"]:
        json.dump(in_recording(find, settings, list(map(int, sys.argv[2:]))), sys.stdout)
        return
    voices = VoiceEmbedder(settings)
    while header := sys.stdin.buffer.read(4):
        pcm = sys.stdin.buffer.read(int.from_bytes(header, "little"))
        turns = find(pcm)
        print(json.dumps({"turns": turns, "voices": voices.of(turns, floats(pcm))}), flush=True)


def in_recording(find: Any, settings: dict[str, Any], sample_sizes: Sequence[int]) -> dict[str, Any]:
    if not sample_sizes:  # the model of voices need not be loaded a second time
        return {"turns": find(sys.stdin.buffer.read()), "voices": {}, "samples": []}
    voices = VoiceEmbedder(settings)
    known = [voices.of_parts([floats(sys.stdin.buffer.read(size))]) for size in sample_sizes]
    if None in known:
        return {"turns": [], "voices": {}, "samples": known}
    pcm = sys.stdin.buffer.read()
    turns = find(pcm)
    return {"turns": turns, "voices": voices.of(turns, floats(pcm)), "samples": known}


def load(settings: dict[str, Any]) -> Any:
    """Load the models; return a function from PCM to its turns."""
    threads = settings["num_threads"]
    pyannote = sherpa_onnx.OfflineSpeakerSegmentationPyannoteModelConfig(model=settings["segmentation"])
    diarization = sherpa_onnx.OfflineSpeakerDiarization(
        sherpa_onnx.OfflineSpeakerDiarizationConfig(
            segmentation=sherpa_onnx.OfflineSpeakerSegmentationModelConfig(
                pyannote=pyannote, num_threads=threads
            ),
            embedding=embedding_config(settings),
            clustering=sherpa_onnx.FastClusteringConfig(
                num_clusters=settings["num_speakers"], threshold=settings["threshold"]
            ),
            min_duration_on=MIN_SPEECH_S,
            min_duration_off=MIN_PAUSE_S,
        )
    )

    def find(pcm: bytes) -> Turns:
        if not pcm:
            return []
        result = diarization.process(floats(pcm))
        return [(turn.start, turn.end, turn.speaker) for turn in result.sort_by_start_time()]

    return find


class VoiceEmbedder:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._extractor = sherpa_onnx.SpeakerEmbeddingExtractor(embedding_config(settings))

    def of(self, turns: Turns, audio: NDArray[np.float32]) -> dict[int, list[float]]:
        """Return the embedding of each speaker; none of one with too little speech."""
        found = {}
        for number in {number for *_, number in turns}:
            embedding = self.of_parts(
                audio[round(start_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
                for start_s, end_s, speaker in turns
                if speaker == number
            )
            if embedding is not None:
                found[number] = embedding
        return found

    def of_parts(self, parts: Iterable[NDArray[np.float32]]) -> list[float] | None:
        """Return the embedding of audio of one speaker; ``None`` if it is too short."""
        stream = self._extractor.create_stream()
        for part in parts:
            stream.accept_waveform(SAMPLE_RATE, part)
        stream.input_finished()
        return list(self._extractor.compute(stream)) if self._extractor.is_ready(stream) else None


def embedding_config(settings: dict[str, Any]) -> Any:
    return sherpa_onnx.SpeakerEmbeddingExtractorConfig(
        model=settings["embedding"], num_threads=settings["num_threads"]
    )


if __name__ == "__main__":
    main()
