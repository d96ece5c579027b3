"""Decode what Riva's clients stream: raw PCM, mu-law or A-law, or a WAV file."""

from __future__ import annotations

from dataclasses import dataclass

from riva.client.proto import riva_asr_pb2, riva_audio_pb2

from specwhisper.audio.canonical import MAX_CHANNELS, MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.audio.decode import G711, decode_g711
from specwhisper.audio.wav import PCM_16, RIFF, RIFF_BYTES, is_wav, read_wav_header
from specwhisper.errors import InvalidAudio, InvalidRequest, check_between

LINEAR_PCM, MULAW, ALAW = riva_audio_pb2.LINEAR_PCM, riva_audio_pb2.MULAW, riva_audio_pb2.ALAW
LAWS = {MULAW: G711.MULAW, ALAW: G711.ALAW}

ENCODING_OF_FORMAT = {PCM_16: LINEAR_PCM, (6, 8): ALAW, (7, 8): MULAW}  # by WAV's number and bits per sample


@dataclass(frozen=True, slots=True)
class Samples:
    """Format of raw samples; ``encoding`` is Riva's number."""

    encoding: int
    sample_rate: int
    num_channels: int

    def __post_init__(self) -> None:
        check_between("sample_rate_hertz", self.sample_rate, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE)
        check_between("audio_channel_count", self.num_channels, 1, MAX_CHANNELS)

    @classmethod
    def named_in(cls, config: riva_asr_pb2.RecognitionConfig, otherwise: str) -> Samples:
        """Return the format of samples without a header; ``otherwise`` is the advice for other encodings."""
        if config.encoding not in (LINEAR_PCM, *LAWS):
            known = riva_audio_pb2.AudioEncoding.values()
            number = config.encoding
            name = riva_audio_pb2.AudioEncoding.Name(number) if number in known else number
            raise InvalidRequest(f"Audio encoding {name} {otherwise}.")
        return cls(config.encoding, config.sample_rate_hertz, config.audio_channel_count or 1)


class StreamedAudio:
    """Converts the bytes of a stream, cut anywhere, to 16-bit samples.

    A WAV file is detected by its first bytes, whatever encoding the client names: Riva's own clients send the
    header along and name none.

    Attributes
    ----------
    samples : format of the samples; ``None`` until enough bytes have arrived to know it.
    """

    def __init__(self, config: riva_asr_pb2.RecognitionConfig) -> None:
        self.samples: Samples | None = None
        self._config = config
        self._head = b""
        self._num_left: int | None = None  # bytes of samples; a file may hold other data after them

    def push(self, data: bytes) -> bytes:
        """Append bytes; return the samples that are ready."""
        if self.samples is None:
            self._head += data
            start = self._begin()
            if start is None:
                return b""
            data, self._head = self._head[start:], b""
        return self._decode(data)

    def finish(self) -> bytes:
        """End the audio; return the last samples."""
        if self.samples is not None:
            return b""
        if not self._head:
            raise InvalidAudio("The stream holds no audio.")
        if is_wav(self._head):
            raise InvalidAudio("The audio ends within the header of a WAV file.")
        self.samples = self._raw_format()
        return self._decode(self._head)

    def _begin(self) -> int | None:
        """Detect the format; return where samples begin, or ``None`` if more bytes are needed."""
        head = self._head
        if not is_wav(head):
            if len(head) < RIFF_BYTES and head[:4] == RIFF[: len(head)]:
                return None
            self.samples = self._raw_format()
            return 0
        header = read_wav_header(head)
        if header is None:
            return None
        if header.format not in ENCODING_OF_FORMAT:
            number, num_bits = header.format
            raise InvalidAudio(
                f"A streamed WAV file has {num_bits}-bit samples of format {number}: send 16-bit PCM, mu-law "
                "or A-law, or the file to Recognize."
            )
        encoding = ENCODING_OF_FORMAT[header.format]
        self.samples = Samples(encoding, header.sample_rate, header.num_channels)
        self._num_left = header.num_bytes
        return header.start

    def _raw_format(self) -> Samples:
        return Samples.named_in(
            self._config,
            "must be a WAV file if it is streamed: set LINEAR_PCM, MULAW or ALAW for raw samples, or send "
            "other files to Recognize",
        )

    def _decode(self, data: bytes) -> bytes:
        if self._num_left is not None:
            data = data[: self._num_left]
            self._num_left -= len(data)
        return data if self.samples is None else linear_16(data, self.samples.encoding)


def linear_16(data: bytes, encoding: int) -> bytes:
    """Decode raw samples to s16le; each sample is decoded by itself."""
    return data if encoding == LINEAR_PCM else decode_g711(data, LAWS[encoding])
