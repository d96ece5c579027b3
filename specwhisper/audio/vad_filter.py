"""Leave out what isn't speech from a recording, with silero-vad's model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec

from specwhisper.audio.canonical import BYTES_PER_SAMPLE, floats
from specwhisper.audio.endpointing import FRAME_SAMPLES
from specwhisper.audio.silero import PACKAGE, SileroVad
from specwhisper.audio.speech import Span, SpeechFinder, SpeechMap
from specwhisper.selection import VadOptions

FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE
# People who take turns leave about 200 ms between them. Shorter speech may be the beginning of a hum.
TURNS = VadOptions(min_silence_duration_ms=200, min_speech_duration_ms=250, speech_pad_ms=0)


def find_speech(blocks: Iterable[bytes], options: VadOptions) -> SpeechMap:
    """Return where the speech of a recording lies, in constant memory.

    ``blocks``: the recording as canonical PCM.
    """
    stream, finder = _model().open(), SpeechFinder(options)
    num_bytes, rest = 0, b""

    def add(pcm: bytes) -> None:
        for frame in floats(pcm).reshape(-1, FRAME_SAMPLES):
            finder.on_vad_probability(stream(frame))

    for block in blocks:
        num_bytes += len(block)
        data = rest + block
        end = len(data) - len(data) % FRAME_BYTES
        rest = data[end:]
        add(data[:end])
    add(rest.ljust(FRAME_BYTES, b"\0"))  # faster-whisper adds a frame of silence, too, if none is incomplete
    num_samples = num_bytes // BYTES_PER_SAMPLE
    return SpeechMap(finder.finish(num_samples), num_samples)


def only_speech(decode: Callable[[], Iterator[bytes]], speech: SpeechMap) -> Callable[[], Iterator[bytes]]:
    """Return what decodes the speech of a recording, one span after the other."""
    return partial(_cut, decode, speech)


def _cut(decode: Callable[[], Iterator[bytes]], speech: SpeechMap) -> Iterator[bytes]:
    spans = iter(speech.spans)
    span = next(spans, None)
    position = 0  # in samples
    for block in decode():
        end = position + len(block) // BYTES_PER_SAMPLE
        while span is not None and span.start < end:
            first, last = max(span.start, position), min(span.stop, end)
            if first < last:
                yield block[(first - position) * BYTES_PER_SAMPLE : (last - position) * BYTES_PER_SAMPLE]
            if span.stop > end:
                break
            span = next(spans, None)
        if span is None:
            return
        position = end


def find_voice() -> Callable[[bytes], tuple[Span, ...]] | None:
    """Return what finds the speech in canonical PCM, if the extra is installed."""
    is_installed = find_spec("onnxruntime") and find_spec(PACKAGE)
    return (lambda pcm: find_speech([pcm], TURNS).spans) if is_installed else None


def check_extra() -> None:
    """Raise :class:`MissingExtra` unless the detector can be loaded."""
    _model()


@cache
def _model() -> SileroVad:
    return SileroVad()
