"""Convert a session's messages: audio, candidates, resume, windows, commits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import InvalidAudio, InvalidCandidates, InvalidRequest, check_between
from specwhisper.types import (
    HOP_SAMPLES,
    WINDOW_FRAMES,
    WINDOW_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    CompletePiece,
    ConfirmEvery,
    Outcome,
    Resume,
    Timing,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
    WordAlignment,
)
from specwhisper.wire import flac
from specwhisper.wire.codec.fields import filled, name_of, values_in
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import verification_pb2 as pb

MAX_WINDOW_ID = 2**31  # a session that resumes there can count on
MAX_START_FRAME = 2**63 // HOP_SAMPLES  # samples after it can still be counted
MAX_MARKS = 256  # in a message; speech does not begin and end more often in the longest one
MAX_LOG_PROB = 1.0  # 0, but for rounding where logits have half precision


def audio_chunk_to_proto(chunk: AudioChunk, *, compress: bool = False) -> pb.Audio:
    """Encode audio; as FLAC if ``compress`` is set and there are samples."""
    as_flac = compress and bool(chunk.pcm)
    encoding = decoding_pb2.AUDIO_ENCODING_FLAC if as_flac else decoding_pb2.AUDIO_ENCODING_LINEAR16
    data = flac.encode(chunk.pcm) if as_flac else chunk.pcm
    return filled(pb.Audio(encoding=encoding, data=data), chunk)


def audio_chunk_from_proto(message: pb.Audio, *, max_samples: int = WINDOW_SAMPLES) -> AudioChunk:
    if message.encoding == decoding_pb2.AUDIO_ENCODING_LINEAR16:
        pcm = message.data
    elif message.encoding == decoding_pb2.AUDIO_ENCODING_FLAC:
        pcm = flac.decode(message.data, max_samples)
    else:
        raise InvalidAudio(f"Audio encoding {message.encoding} is unset or unknown; send LINEAR16 or FLAC.")
    if len(pcm) % BYTES_PER_SAMPLE:
        raise InvalidAudio(f"The audio message has {len(pcm)} bytes; 16-bit samples need an even number.")
    if len(pcm) > max_samples * BYTES_PER_SAMPLE:
        raise InvalidAudio(f"The audio message holds more than {max_samples} samples; send smaller pieces.")
    if len(message.marks) > MAX_MARKS:
        raise InvalidAudio(f"The audio message has {len(message.marks)} marks: at most {MAX_MARKS} fit.")
    marks = tuple(
        VoiceMark(VoiceEvent(name_of(pb.VoiceEvent.DESCRIPTOR, mark.event).lower()), mark.sample)
        for mark in message.marks
    )
    return AudioChunk(message.start_sample, pcm, message.is_last, marks)


def candidates_to_proto(candidates: Candidates, message: pb.Candidates | None = None) -> pb.Candidates:
    """Encode a candidate block, into ``message`` if there is one.

    That is faster than copying it there.
    """
    return filled(pb.Candidates() if message is None else message, candidates)


def candidates_from_proto(
    message: pb.Candidates, *, vocabulary_size: int | None = None, max_tokens: int | None = None
) -> Candidates:
    """Decode a candidate block within the limits of its session.

    A token id outside the vocabulary must not reach the model.
    """
    tokens = tuple(message.tokens)
    if max_tokens is not None and len(tokens) > max_tokens:
        raise InvalidCandidates(
            f"A candidate block has {len(tokens)} tokens; at most {max_tokens} are allowed."
        )
    if vocabulary_size is not None and tokens and max(tokens) >= vocabulary_size:
        raise InvalidCandidates(
            f"Candidate token {max(tokens)} is out of range: the target has {vocabulary_size} tokens."
        )
    return Candidates(**values_in(message, Candidates))


def window_to_proto(window: Window) -> pb.Window:
    return filled(pb.Window(), window)


def window_from_proto(message: pb.Window) -> Window:
    if message.num_frames > WINDOW_FRAMES:
        raise InvalidRequest(f"A window has {message.num_frames} mel frames; at most {WINDOW_FRAMES} fit.")
    if message.id > MAX_WINDOW_ID:
        raise InvalidRequest(f"A window has number {message.id}; they are counted up to {MAX_WINDOW_ID}.")
    if message.start_frame > MAX_START_FRAME:
        raise InvalidRequest(
            f"A window begins at mel frame {message.start_frame}; they are counted up to {MAX_START_FRAME}."
        )
    if not (math.isfinite(message.temperature) and message.temperature >= 0):
        raise InvalidRequest(f"A window has temperature {message.temperature}; it must be 0 or more.")
    return Window(**values_in(message, Window))


def resume_to_proto(resume: Resume) -> pb.Resume:
    message = filled(pb.Resume(), resume)
    filled(message.window, resume)
    return message


def resume_from_proto(message: pb.Resume, *, vocabulary_size: int | None = None) -> Resume:
    if not message.HasField("window"):
        raise InvalidRequest("Resume names no window; send the one that was open.")
    window, committed = window_from_proto(message.window), tuple(message.committed)
    if len(committed) > window.max_new_tokens:
        raise InvalidRequest(
            f"Resume has {len(committed)} committed tokens; the window takes at most {window.max_new_tokens}."
        )
    previous, log_probs = tuple(message.window.previous), tuple(message.log_probs)
    _check_tokens("Resume", window.prompt + committed + previous, vocabulary_size)
    if not all(log_prob <= MAX_LOG_PROB for log_prob in log_probs):  # nor is it NaN
        raise InvalidRequest("Resume has a number that is not a log-probability; send those of the commits.")
    return Resume(window, committed, _log_mel_max(message.window), log_probs, previous)


def confirm_every_to_proto(message: ConfirmEvery) -> pb.ConfirmEvery:
    return filled(pb.ConfirmEvery(), message)


def confirm_every_from_proto(message: pb.ConfirmEvery) -> ConfirmEvery:
    if not message.HasField("interval_ms"):
        return ConfirmEvery(None)
    check_between("interval_ms", message.interval_ms, 100, 10_000)
    return ConfirmEvery(message.interval_ms)


def window_opened_to_proto(opened: WindowOpened) -> pb.WindowOpened:
    message = filled(pb.WindowOpened(), opened)
    filled(message.window, opened)
    return message


def window_opened_from_proto(message: pb.WindowOpened, *, vocabulary_size: int | None = None) -> WindowOpened:
    if not message.HasField("window"):
        raise InvalidRequest("WindowOpened names no window.")
    window, opening, previous = window_from_proto(message.window), message.opening, message.window.previous
    _check_tokens("A window", [*window.prompt, *window.prefix, *opening, *previous], vocabulary_size)
    return WindowOpened(
        window, _log_mel_max(message.window), tuple(opening), tuple(previous), dict(message.language_probs)
    )


def commit_to_proto(commit: Commit, message: pb.Commit | None = None) -> pb.Commit:
    """Encode a commit, into ``message`` if there is one.

    That is faster than copying it there.
    """
    message = filled(pb.Commit() if message is None else message, commit)
    return filled(message, commit.timing)


def commit_from_proto(message: pb.Commit, *, vocabulary_size: int | None = None) -> Commit:
    tokens, log_probs = tuple(message.tokens), tuple(message.log_probs)
    _check_tokens("A commit", tokens, vocabulary_size)
    if log_probs and len(log_probs) != len(tokens):
        raise InvalidRequest(f"A commit has {len(tokens)} tokens but {len(log_probs)} log_probs.")
    if any(map(math.isnan, log_probs)):
        raise InvalidRequest("A commit has log_probs that are not numbers.")
    values = values_in(message, Commit)
    values["outcome"] = Outcome(values["outcome"] or Outcome.KEPT)
    if message.HasField("piece"):
        values["piece"] = CompletePiece(**values_in(message.piece, CompletePiece))
    words = tuple(WordAlignment(**values_in(word, WordAlignment)) for word in message.words)
    return Commit(**values, words=words, timing=Timing(**values_in(message, Timing)))


def _check_tokens(holder: str, tokens: Sequence[int], vocabulary_size: int | None) -> None:
    """Raise for ids outside the vocabulary: on a device, one ends the process."""
    if vocabulary_size is not None and max(tokens, default=0) >= vocabulary_size:
        raise InvalidRequest(
            f"{holder} has a token out of range; the vocabulary has {vocabulary_size} tokens."
        )


def _log_mel_max(message: pb.Window) -> float | None:
    if not message.HasField("log_mel_max"):
        return None
    check_finite("log_mel_max", [message.log_mel_max])
    return message.log_mel_max


def check_finite(name: str, values: Iterable[float]) -> None:
    """Raise ``InvalidRequest`` for NaN and infinities."""
    if not all(map(math.isfinite, values)):
        raise InvalidRequest(f"{name} holds a value that is not a finite number.")
