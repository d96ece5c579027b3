"""Convert the requests of Riva's clients to our messages, and decode their audio."""

from __future__ import annotations

from dataclasses import dataclass

from riva.client.proto import riva_asr_pb2, riva_audio_pb2

from specwhisper.audio.canonical import MAX_CHANNELS, MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.audio.decode import G711, decode_g711
from specwhisper.audio.wav import PCM_16, RIFF, RIFF_BYTES, is_wav, read_wav_header
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption, check_between
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import options_from
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.validated import number_in, spelled
from specwhisper.wire import codec
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb

LINEAR_PCM, MULAW, ALAW = riva_audio_pb2.LINEAR_PCM, riva_audio_pb2.MULAW, riva_audio_pb2.ALAW
LAWS = {MULAW: G711.MULAW, ALAW: G711.ALAW}
ENCODING_OF_FORMAT = {PCM_16: LINEAR_PCM, (6, 8): ALAW, (7, 8): MULAW}  # by WAV's number and bits per sample
CONTAINERS = (riva_audio_pb2.ENCODING_UNSPECIFIED, riva_audio_pb2.FLAC, riva_audio_pb2.OGGOPUS)
ANY_LANGUAGE = "multi"  # Riva's code for language detection
# Riva's default windows, if a client sets only the share of them that must be speech, or silence.
START_HISTORY_MS = 300
STOP_HISTORY_MS = 800
MIN_WINDOW_MS, MAX_WINDOW_MS = 32, 10_000  # from a frame of the voice activity detector on


def recognition_config(
    config: riva_asr_pb2.RecognitionConfig, live: LiveOptions | None = None
) -> pb.RecognitionConfig:
    """Return a request's settings of the text; :func:`set_samples` adds those of the audio."""
    if config.enable_separate_recognition_per_channel:
        raise UnsupportedOption(
            "Channels are mixed to one: leave enable_separate_recognition_per_channel out, or send each "
            "channel as a request of its own."
        )
    custom = config.custom_configuration
    language = config.language_code
    has_speakers = config.diarization_config.enable_speaker_diarization
    given = {name: custom.get(name) for name in ("task", "languages", "channel")} | {
        "language": None if language.lower() == ANY_LANGUAGE else language,
        "word_timestamps": config.enable_word_time_offsets or has_speakers,
        "keywords": [phrase for context in config.speech_contexts for phrase in context.phrases],
        "live": live,
        "strict": custom.get("strict", "").lower() == "true",
        "audio_track": number_in(custom.get("audio_track")),
        "container_times": custom.get("container_times", "").lower() != "false",
    }
    options = options_from({}, given)
    message = codec.recognition_config_to_proto(options)
    message.gamma = DraftLength(Mode.FULL, number_in(custom.get("gamma"))).gamma or 0
    if mode := custom.get("mode"):
        if mode not in SERVER_MODES:
            raise InvalidRequest(f"mode is '{mode}': choose from: {', '.join(SERVER_MODES)}.")
        message.mode = codec.mode_to_proto(Mode(mode))
    return message


def set_samples(message: pb.RecognitionConfig, samples: Samples) -> None:
    message.encoding = decoding_pb2.AUDIO_ENCODING_LINEAR16
    message.sample_rate_hertz = samples.sample_rate
    message.audio_channel_count = samples.num_channels


def whole_config(request: riva_asr_pb2.RecognizeRequest) -> pb.RecognitionConfig:
    """Return the settings of a whole recording; its audio: :func:`whole_audio`."""
    ours = recognition_config(request.config)
    if not _has_header(request):
        set_samples(ours, Samples.named_in(request.config, "is unknown"))
    return ours


def whole_audio(request: riva_asr_pb2.RecognizeRequest) -> bytes:
    """Return a whole recording's audio; raw samples are decoded, which takes time."""
    audio: bytes = request.audio
    return audio if _has_header(request) else linear_16(audio, request.config.encoding)


def _has_header(request: riva_asr_pb2.RecognizeRequest) -> bool:
    return request.config.encoding in CONTAINERS or is_wav(request.audio)


def endpointing(config: riva_asr_pb2.RecognitionConfig) -> pb.Endpointing:
    """Return how utterances begin and end.

    Riva's settings are windows, and the share of them that must be speech, or silence: their product is the
    length that we need. Its neural VAD's ``onset`` is the probability above which audio is speech.
    """
    asked = config.endpointing_config
    message = pb.Endpointing()
    if (onset := config.custom_configuration.get("neural_vad.onset")) is not None:
        with spelled({"threshold": "neural_vad.onset"}):
            message.threshold = EndpointingOptions(threshold=number_in(onset)).threshold
    speech_ms = _length_ms(asked, "start_history", "start_threshold", START_HISTORY_MS)
    silence_ms = _length_ms(asked, "stop_history", "stop_threshold", STOP_HISTORY_MS)
    if speech_ms is not None:
        message.min_speech_ms = speech_ms
    if silence_ms is not None:  # for every utterance, however short
        message.silence_duration_ms = message.short_silence_ms = silence_ms
    return message


def _length_ms(
    asked: riva_asr_pb2.EndpointingConfig, history: str, threshold: str, default_ms: int
) -> int | None:
    """Return the required length of speech or silence; ``None`` if unset, or -1."""
    window_ms, share = getattr(asked, history), getattr(asked, threshold)
    if window_ms <= 0 and share <= 0:
        return None
    window_ms = window_ms if window_ms > 0 else default_ms
    share = share if share > 0 else 1.0
    check_between(history, window_ms, MIN_WINDOW_MS, MAX_WINDOW_MS)
    check_between(threshold, share, 0, 1)
    return max(MIN_WINDOW_MS, round(window_ms * share))


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
