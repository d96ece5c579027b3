"""The realtime sessions of Riva's client, which extend OpenAI's beta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specwhisper.audio.canonical import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.audio.wav import PCM_16, RIFF, is_wav, read_wav_header
from specwhisper.errors import InvalidAudio
from specwhisper.live import MIN_SILENCE_MS
from specwhisper.selection import MAX_MS
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.realtime.settings import AudioFormat, RealtimeSettings, nested

SAMPLE_RATE = 16_000  # Riva's default
ANY_LANGUAGE = "multi"  # Riva's code for language detection
FILE = "none"  # the format that Riva's client names for a file, which it sends with its header
STOP_HISTORY_MS = 800  # Riva's default, as over gRPC
# The client returns what the gateway sent it; and settings without effect on Whisper, as over gRPC.
WITHOUT_EFFECT = frozenset(
    {"id", "object", "modalities", "client_secret", "input_audio_noise_reduction", "include"}
    | {"recognition_config"}
)
OWN = frozenset({"input_audio_params", "speaker_diarization", "word_boosting", "endpointing_config"})


def updated(settings: RealtimeSettings, session: Mapping[str, Any]) -> RealtimeSettings:
    """Return the settings with a client's changes.

    Raises :class:`InvalidField` if one is not supported.
    """
    flat = {name: value for name, value in session.items() if name not in WITHOUT_EFFECT | OWN}
    if flat.get("input_audio_format") == FILE:
        del flat["input_audio_format"]
    transcription = dict(_object(flat, "input_audio_transcription"))
    if transcription.get("language") in ("", ANY_LANGUAGE):
        transcription["language"] = None
    if _object(session, "speaker_diarization").get("enable_speaker_diarization"):
        raise InvalidField("Speaker diarization is not offered.", "session.speaker_diarization")
    if phrases := _phrases(_object(session, "word_boosting")):
        transcription["keywords"] = phrases
    flat["input_audio_transcription"] = transcription
    if (silence_ms := _silence_ms(_object(session, "endpointing_config"))) is not None:
        flat["turn_detection"] = {"type": "server_vad", "silence_duration_ms": silence_ms}
    audio = _object(session, "input_audio_params")
    if audio.get("num_channels", 1) != 1:
        raise InvalidField("Audio must have one channel.", "session.input_audio_params.num_channels")
    rate = audio.get("sample_rate_hz", settings.audio_format.rate)
    if not isinstance(rate, int) or not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
        raise InvalidField(
            f"The sample rate must be {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} Hz.",
            "session.input_audio_params.sample_rate_hz",
        )
    changed = settings.updated(nested(flat))
    return replace(changed, audio_format=AudioFormat(changed.audio_format.name, rate))


class WavPieces:
    """The samples of audio that may be WAV files, cut anywhere after the header.

    A file may hold other data after its samples.
    """

    def __init__(self) -> None:
        self._num_left: int | None = None  # bytes of samples of the file; None for other audio

    def samples_of(self, piece: bytes) -> bytes:
        """Return the samples of the next piece.

        Raises :class:`InvalidField` for a file that has no 16-bit samples in one channel.
        """
        if piece.startswith(RIFF):
            samples, self._num_left = _first_samples(piece)
            return samples
        if self._num_left is None:
            return piece
        samples = piece[: self._num_left]
        self._num_left -= len(samples)
        return samples

    def finish(self) -> None:
        self._num_left = None


def _first_samples(piece: bytes) -> tuple[bytes, int | None]:
    """Return the samples after a file's header, and the bytes that follow, if the header has their number."""
    try:
        header = read_wav_header(piece) if is_wav(piece) else None
    except InvalidAudio:
        header = None
    if header is None or (header.format, header.num_channels) != (PCM_16, 1):
        raise InvalidField("A WAV file must have 16-bit samples in one channel.", "audio")
    end = None if header.num_bytes is None else header.start + header.num_bytes
    samples = piece[header.start : end]
    return samples, None if header.num_bytes is None else header.num_bytes - len(samples)


def _phrases(boosting: Mapping[str, Any]) -> list[str]:
    lists = boosting.get("word_boosting_list") or []
    if not isinstance(lists, list) or not all(isinstance(words, dict) for words in lists):
        raise InvalidField("word_boosting_list must be a list of objects.", "session.word_boosting")
    phrases: list[str] = []
    for words in lists:
        added = words.get("phrases") or []
        if not isinstance(added, list) or not all(isinstance(phrase, str) for phrase in added):
            raise InvalidField("phrases must be a list of texts.", "session.word_boosting")
        phrases += added
    return phrases


def _silence_ms(endpointing: Mapping[str, Any]) -> int | None:
    """Return the silence that ends an utterance: the part of a window that must be silent.

    Numbers that are not above 0 stand for the defaults.
    """
    history, threshold = endpointing.get("stop_history") or 0, endpointing.get("stop_threshold") or 0
    if not (isinstance(history, int) and history <= MAX_MS):
        raise InvalidField(
            f"stop_history must be milliseconds, at most {MAX_MS}.", "session.endpointing_config"
        )
    if not (isinstance(threshold, int | float) and threshold <= 1):
        raise InvalidField("stop_threshold must be at most 1.", "session.endpointing_config")
    if history <= 0 and threshold <= 0:
        return None
    silence_ms = (history if history > 0 else STOP_HISTORY_MS) * (threshold if threshold > 0 else 1)
    return max(MIN_SILENCE_MS, round(silence_ms))


def _object(session: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = session.get(name) or {}
    if not isinstance(value, dict):
        raise InvalidField(f"{name} must be an object.", f"session.{name}")
    return value
