"""The terms of a session, agreed before it begins: mode, task, decoding options, limits and vocabulary."""

from __future__ import annotations

from typing import Any

from specwhisper.errors import InvalidRequest, PairMismatch, UnsupportedOption
from specwhisper.options import Acceptance, CompressionRatio, DecodingOptions, Task
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Limits, Mode
from specwhisper.wire.codec.checks import check_finite
from specwhisper.wire.v1 import verification_pb2 as pb

MODES = {
    Mode.TARGET_ONLY: pb.MODE_TARGET_ONLY,
    Mode.SYNC: pb.MODE_SYNC,
    Mode.PIPELINED: pb.MODE_PIPELINED,
    Mode.FULL: pb.MODE_FULL,
}
TASKS = {Task.TRANSCRIBE: pb.TASK_TRANSCRIBE, Task.TRANSLATE: pb.TASK_TRANSLATE}
COMPRESSION_RATIOS = {
    CompressionRatio.TOKENS: pb.COMPRESSION_RATIO_TOKENS,
    CompressionRatio.TEXT: pb.COMPRESSION_RATIO_TEXT,
}
COMPRESSION_RATIO_OF_NUMBER = {int(number): ratio for ratio, number in COMPRESSION_RATIOS.items()}
COMPRESSION_RATIO_OF_NUMBER[pb.COMPRESSION_RATIO_UNSPECIFIED] = CompressionRatio.TOKENS
ACCEPTANCES = {
    Acceptance.EXACT: pb.ACCEPTANCE_EXACT,
    Acceptance.CLASSICAL: pb.ACCEPTANCE_CLASSICAL,
}
ACCEPTANCE_OF_NUMBER = {int(number): acceptance for acceptance, number in ACCEPTANCES.items()}
ACCEPTANCE_OF_NUMBER[pb.ACCEPTANCE_UNSPECIFIED] = Acceptance.EXACT
OPTIONAL = (
    "acceptance_threshold",
    "max_new_tokens",
    "max_initial_timestamp_s",
    "top_p",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)
MODE_OF_NUMBER = {int(number): mode for mode, number in MODES.items()}
TASK_OF_NUMBER = {int(number): task for task, number in TASKS.items()}
TASK_OF_NUMBER[pb.TASK_UNSPECIFIED] = Task.TRANSCRIBE


def mode_to_proto(mode: Mode) -> pb.Mode:
    """Encode a mode of the split service."""
    if mode not in MODES:
        raise UnsupportedOption(f"Mode '{mode}' is not one of a server's; choose from: {', '.join(MODES)}.")
    return MODES[mode]


def mode_from_proto(number: int) -> Mode:
    """Decode a mode; it must be set."""
    if number not in MODE_OF_NUMBER:
        raise InvalidRequest(f"Mode {number} is unset or unknown; choose from: {', '.join(MODES)}.")
    return MODE_OF_NUMBER[number]


def task_to_proto(task: Task) -> pb.Task:
    """Encode a task."""
    return TASKS[task]


def task_from_proto(number: int) -> Task:
    """Decode a task; unset means transcribe."""
    if number not in TASK_OF_NUMBER:
        raise InvalidRequest(f"Task {number} is unknown; choose from: {', '.join(TASKS)}.")
    return TASK_OF_NUMBER[number]


def decoding_options_to_proto(options: DecodingOptions) -> pb.DecodingOptions:
    """Encode decoding options."""
    return pb.DecodingOptions(
        language=options.language,
        task=task_to_proto(options.task),
        without_timestamps=not options.timestamps,
        word_timestamps=options.word_timestamps,
        max_new_tokens=options.max_new_tokens,
        max_initial_timestamp_s=options.max_initial_timestamp_s,
        temperatures=options.temperatures,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        acceptance=ACCEPTANCES[options.acceptance],
        acceptance_threshold=options.acceptance_threshold,
        compression_ratio_threshold=options.compression_ratio_threshold,
        compression_ratio_of=COMPRESSION_RATIOS[options.compression_ratio_of],
        logprob_threshold=options.logprob_threshold,
        no_speech_threshold=options.no_speech_threshold,
        condition_on_previous_text=options.condition_on_previous_text,
        initial_prompt=options.initial_prompt,
        carry_initial_prompt=options.carry_initial_prompt,
        hotwords=options.hotwords,
        log_mel_max=options.log_mel_max,
    )


def decoding_options_from_proto(message: pb.DecodingOptions) -> DecodingOptions:
    """Decode decoding options."""
    check_finite("log_mel_max", message.log_mel_max.values())
    if message.compression_ratio_of not in COMPRESSION_RATIO_OF_NUMBER:
        raise InvalidRequest(f"Compression ratio {message.compression_ratio_of} is unknown.")
    if message.acceptance not in ACCEPTANCE_OF_NUMBER:
        raise InvalidRequest(f"Acceptance {message.acceptance} is unknown.")
    optional: dict[str, Any] = {name: getattr(message, name) for name in OPTIONAL if message.HasField(name)}
    return DecodingOptions(
        language=message.language or None,
        task=task_from_proto(message.task),
        timestamps=not message.without_timestamps,
        word_timestamps=message.word_timestamps,
        temperatures=tuple(message.temperatures) or (0.0,),
        top_k=message.top_k,
        seed=message.seed,
        acceptance=ACCEPTANCE_OF_NUMBER[message.acceptance],
        compression_ratio_of=COMPRESSION_RATIO_OF_NUMBER[message.compression_ratio_of],
        condition_on_previous_text=message.condition_on_previous_text,
        initial_prompt=message.initial_prompt,
        carry_initial_prompt=message.carry_initial_prompt,
        hotwords=message.hotwords,
        **optional,
        log_mel_max=dict(message.log_mel_max),
    )


def limits_to_proto(limits: Limits) -> pb.Limits:
    """Encode limits."""
    return pb.Limits(
        max_block_tokens=limits.max_block_tokens,
        max_ahead_tokens=limits.max_ahead_tokens,
        max_message_bytes=limits.max_message_bytes,
        max_ahead_samples=limits.max_ahead_samples,
        max_sessions=limits.max_sessions,
    )


def limits_from_proto(message: pb.Limits) -> Limits:
    """Decode limits."""
    return Limits(
        max_block_tokens=message.max_block_tokens,
        max_ahead_tokens=message.max_ahead_tokens,
        max_message_bytes=message.max_message_bytes,
        max_ahead_samples=message.max_ahead_samples,
        max_sessions=message.max_sessions,
    )


def vocabulary_to_proto(vocabulary: Vocabulary) -> pb.Vocabulary:
    """Encode a vocabulary."""
    return pb.Vocabulary(
        tokens=vocabulary.tokens,
        end_of_text=vocabulary.end_of_text,
        start_of_transcript=vocabulary.start_of_transcript,
        no_timestamps=vocabulary.no_timestamps,
        timestamp_begin=vocabulary.timestamp_begin,
        languages=vocabulary.languages,
        tasks=vocabulary.tasks,
        suppress=vocabulary.suppress,
        begin_suppress=vocabulary.begin_suppress,
        max_initial_timestamp=vocabulary.max_initial_timestamp,
        max_length=vocabulary.max_length,
        start_of_prev=vocabulary.start_of_prev,
        no_speech=vocabulary.no_speech,
    )


def vocabulary_from_proto(message: pb.Vocabulary) -> Vocabulary:
    """Decode a vocabulary; every id it names must be one of its tokens."""
    has_limit = message.HasField("max_initial_timestamp")
    vocabulary = Vocabulary(
        tokens=tuple(message.tokens),
        end_of_text=message.end_of_text,
        start_of_transcript=message.start_of_transcript,
        no_timestamps=message.no_timestamps if message.HasField("no_timestamps") else None,
        timestamp_begin=message.timestamp_begin,
        languages=dict(message.languages),
        tasks=dict(message.tasks),
        suppress=tuple(message.suppress),
        begin_suppress=tuple(message.begin_suppress),
        max_initial_timestamp=message.max_initial_timestamp if has_limit else None,
        max_length=message.max_length,
        start_of_prev=message.start_of_prev if message.HasField("start_of_prev") else None,
        no_speech=message.no_speech if message.HasField("no_speech") else None,
    )
    largest = max(
        vocabulary.end_of_text,
        vocabulary.start_of_transcript,
        vocabulary.no_timestamps or 0,
        vocabulary.start_of_prev or 0,
        vocabulary.no_speech or 0,
        vocabulary.timestamp_begin - 1,  # a model without timestamps has it behind its last token
        *vocabulary.languages.values(),
        *vocabulary.tasks.values(),
        *vocabulary.suppress,
        *vocabulary.begin_suppress,
    )
    if largest >= len(vocabulary):
        raise PairMismatch(f"The target's vocabulary names token {largest} but has {len(vocabulary)} tokens.")
    return vocabulary
