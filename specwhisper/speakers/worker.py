"""Find the turns of speakers with sherpa-onnx, in a process of its own.

sherpa-onnx keeps Python's lock while it works, for minutes in a long recording, and ends the process if it
cannot use a model. It reads 16-bit PCM at 16 kHz on standard input, to its end, and writes the start, the end
(in seconds) and the number of the speaker of each turn as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import sherpa_onnx


def main() -> None:
    """Read audio, write turns."""
    settings = json.loads(sys.argv[1])
    threads = settings["num_threads"]
    pyannote = sherpa_onnx.OfflineSpeakerSegmentationPyannoteModelConfig(model=settings["segmentation"])
    diarization = sherpa_onnx.OfflineSpeakerDiarization(
        sherpa_onnx.OfflineSpeakerDiarizationConfig(
            segmentation=sherpa_onnx.OfflineSpeakerSegmentationModelConfig(
                pyannote=pyannote, num_threads=threads
            ),
            embedding=sherpa_onnx.SpeakerEmbeddingExtractorConfig(
                model=settings["embedding"], num_threads=threads
            ),
            clustering=sherpa_onnx.FastClusteringConfig(
                num_clusters=settings["num_speakers"], threshold=settings["threshold"]
            ),
            min_duration_on=settings["min_speech_s"],
            min_duration_off=settings["min_pause_s"],
        )
    )
    pcm = np.frombuffer(sys.stdin.buffer.read(), "<i2")
    turns = []
    if len(pcm):
        result = diarization.process(pcm.astype(np.float32) / 32_768)
        turns = [(turn.start, turn.end, turn.speaker) for turn in result.sort_by_start_time()]
    json.dump(turns, sys.stdout)


if __name__ == "__main__":
    main()
