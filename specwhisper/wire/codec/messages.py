"""Convert a session's messages: audio, candidates, resume, windows, commits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

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
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import verification_pb2 as pb

MAX_WINDOW_ID = 2**31  # a session that resumes there can count on
MAX_START_FRAME = 2**63 // HOP_SAMPLES  # samples after it can still be counted
MAX_MARKS = 256  # in a message; speech does not begin and end more often in the longest one
MAX_LOG_PROB = 1.0  # 0, but for rounding where logits have half precision
OUTCOMES = {
    Outcome.KEPT: pb.OUTCOME_KEPT,
    Outcome.RETRIED: pb.OUTCOME_RETRIED,
    Outcome.SKIPPED: pb.OUTCOME_SKIPPED,
}
VOICE_EVENTS = {
    VoiceEvent.BEGIN: pb.VOICE_EVENT_BEGIN,
    VoiceEvent.CUT: pb.VOICE_EVENT_CUT,
    VoiceEvent.END: pb.VOICE_EVENT_END,
    VoiceEvent.BREAK: pb.VOICE_EVENT_BREAK,
}
VOICE_EVENT_OF_NUMBER = {int(number): event for event, number in VOICE_EVENTS.items()}
OUTCOME_OF_NUMBER = {int(number): outcome for outcome, number in OUTCOMES.items()}


def audio_chunk_to_proto(chunk: AudioChunk, *, compress: bool = False) -> pb.Audio:
    """Encode audio; as FLAC if ``compress`` is set and there are samples."""
    as_flac = compress and bool(chunk.pcm)
    return pb.Audio(
        start_sample=chunk.start_sample,
        encoding=decoding_pb2.AUDIO_ENCODING_FLAC if as_flac else decoding_pb2.AUDIO_ENCODING_LINEAR16,
        data=flac.encode(chunk.pcm) if as_flac else chunk.pcm,
        is_last=chunk.is_last,
        marks=[pb.VoiceMark(event=VOICE_EVENTS[mark.event], sample=mark.sample) for mark in chunk.marks],
    )


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
    if any(mark.event not in VOICE_EVENT_OF_NUMBER for mark in message.marks):
        raise InvalidAudio("A mark in the audio has an event that is unset or unknown.")
    marks = tuple(VoiceMark(VOICE_EVENT_OF_NUMBER[mark.event], mark.sample) for mark in message.marks)
    return AudioChunk(message.start_sample, pcm, message.is_last, marks)


def candidates_to_proto(candidates: Candidates, message: pb.Candidates | None = None) -> pb.Candidates:
    """Encode a candidate block, into ``message`` if there is one.

    That is faster than copying it there.
    """
    message = pb.Candidates() if message is None else message
    message.window_id = candidates.window_id
    message.base = candidates.base
    message.known_committed = candidates.known_committed
    message.tokens.extend(candidates.tokens)
    message.block_number = candidates.block_number
    if candidates.start_frame is not None:
        message.start_frame = candidates.start_frame
    return message


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
    return Candidates(
        window_id=message.window_id,
        base=message.base,
        known_committed=message.known_committed,
        tokens=tokens,
        block_number=message.block_number,
        start_frame=message.start_frame if message.HasField("start_frame") else None,
    )


def window_to_proto(
    window: Window, log_mel_max: float | None = None, previous: Sequence[int] = ()
) -> pb.Window:
    return pb.Window(
        id=window.id,
        start_frame=window.start_frame,
        num_frames=window.num_frames,
        prompt=window.prompt,
        max_new_tokens=window.max_new_tokens,
        temperature=window.temperature,
        attempt=window.attempt,
        redetects=window.redetects,
        prefix=window.prefix,
        log_mel_max=log_mel_max,
        previous=previous,
    )


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
    return Window(
        id=message.id,
        start_frame=message.start_frame,
        num_frames=message.num_frames,
        prompt=tuple(message.prompt),
        max_new_tokens=message.max_new_tokens,
        temperature=message.temperature,
        attempt=message.attempt,
        redetects=message.redetects,
        prefix=tuple(message.prefix),
    )


def resume_to_proto(resume: Resume) -> pb.Resume:
    return pb.Resume(
        window=window_to_proto(resume.window, resume.log_mel_max, resume.previous),
        committed=resume.committed,
        log_probs=resume.log_probs,
    )


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
    return pb.ConfirmEvery(interval_ms=message.interval_ms)


def confirm_every_from_proto(message: pb.ConfirmEvery) -> ConfirmEvery:
    if not message.HasField("interval_ms"):
        return ConfirmEvery(None)
    check_between("interval_ms", message.interval_ms, 100, 10_000)
    return ConfirmEvery(message.interval_ms)


def window_opened_to_proto(opened: WindowOpened) -> pb.WindowOpened:
    return pb.WindowOpened(
        window=window_to_proto(opened.window, opened.log_mel_max, opened.previous),
        opening=opened.opening,
        language_probs=opened.language_probs,
    )


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
    message, timing = pb.Commit() if message is None else message, commit.timing
    message.window_id = commit.window_id
    message.base = commit.base
    message.tokens.extend(commit.tokens)
    message.log_probs.extend(commit.log_probs)
    message.num_verified = commit.num_verified
    message.num_accepted = commit.num_accepted
    message.num_self_decoded = commit.num_self_decoded
    message.answered_block = commit.answered_block
    message.held = commit.held
    message.credit = commit.credit
    message.is_final = commit.is_final
    message.outcome = OUTCOMES[commit.outcome]
    message.num_hinted = commit.num_hinted
    message.num_hinted_first = commit.num_hinted_first
    message.queue_ns = timing.queue_ns
    message.forward_ns = timing.forward_ns
    message.batch_size = timing.batch_size
    message.block_age_ns = timing.block_age_ns
    message.token_ns = timing.token_ns
    if timing.encode_ns or timing.detect_ns:  # a window's first commit
        message.encode_ns, message.detect_ns = timing.encode_ns, timing.detect_ns
    if commit.no_speech_prob is not None:
        message.no_speech_prob = commit.no_speech_prob
    if commit.num_align_forwards or timing.align_ns:
        message.num_align_forwards, message.align_ns = commit.num_align_forwards, timing.align_ns
    if commit.piece is not None:
        message.piece.CopyFrom(pb.CompletePiece(**asdict(commit.piece)))
    for word in commit.words:
        message.words.add(
            base=word.base,
            num_tokens=word.num_tokens,
            start_sample=word.start_sample,
            end_sample=word.end_sample,
        )
    if commit.num_transcribed is not None:
        message.num_transcribed = commit.num_transcribed
    return message


def commit_from_proto(message: pb.Commit, *, vocabulary_size: int | None = None) -> Commit:
    tokens, log_probs = tuple(message.tokens), tuple(message.log_probs)
    _check_tokens("A commit", tokens, vocabulary_size)
    if log_probs and len(log_probs) != len(tokens):
        raise InvalidRequest(f"A commit has {len(tokens)} tokens but {len(log_probs)} log_probs.")
    if any(map(math.isnan, log_probs)):
        raise InvalidRequest("A commit has log_probs that are not numbers.")
    return Commit(
        window_id=message.window_id,
        base=message.base,
        tokens=tokens,
        log_probs=log_probs,
        num_verified=message.num_verified,
        num_accepted=message.num_accepted,
        num_self_decoded=message.num_self_decoded,
        answered_block=message.answered_block,
        held=message.held,
        credit=message.credit,
        is_final=message.is_final,
        outcome=OUTCOME_OF_NUMBER.get(message.outcome, Outcome.KEPT),
        num_hinted=message.num_hinted,
        num_hinted_first=message.num_hinted_first,
        num_align_forwards=message.num_align_forwards,
        words=tuple(
            WordAlignment(word.base, word.num_tokens, word.start_sample, word.end_sample)
            for word in message.words
        ),
        num_transcribed=message.num_transcribed if message.HasField("num_transcribed") else None,
        piece=_piece(message.piece) if message.HasField("piece") else None,
        no_speech_prob=message.no_speech_prob if message.HasField("no_speech_prob") else None,
        timing=Timing(
            message.queue_ns,
            message.forward_ns,
            message.encode_ns,
            message.batch_size,
            message.block_age_ns,
            message.align_ns,
            message.detect_ns,
            message.token_ns,
        ),
    )


def _piece(message: pb.CompletePiece) -> CompletePiece:
    return CompletePiece(message.utterance, message.start_sample, message.is_utterance_end)


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
