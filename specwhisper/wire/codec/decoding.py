"""Convert modes, tasks and decoding options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.options import CompressionRatio, DecodingOptions, Padding, Task, WordTimes
from specwhisper.selection import MIX
from specwhisper.types import Mode
from specwhisper.wire.codec.checks import check_finite
from specwhisper.wire.codec.live import live_options_from_proto, live_options_to_proto
from specwhisper.wire.v1 import decoding_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2

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
COMPRESSION_RATIO_OF_NUMBER[pb.COMPRESSION_RATIO_UNSPECIFIED] = CompressionRatio.TEXT
OPTIONAL = (
    "timestamps",
    "acceptance_threshold",
    "max_new_tokens",
    "max_initial_timestamp_s",
    "top_p",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
    "hallucination_silence_threshold",
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
    """Encode decoding options; those that select audio are the client's and its draft server's."""
    if options.vad_filter:
        raise UnsupportedOption("vad_filter is True: it is for whole recordings only, as files.")
    return pb.DecodingOptions(
        greedy=True,  # so that what is absent is left out
        languages=options.languages if options.language is None else (options.language,),
        multilingual=options.multilingual,
        task=task_to_proto(options.task),
        timestamps=options.timestamps,
        word_timestamps=options.word_timestamps,
        model_word_times=options.word_times is WordTimes.MODEL,
        max_new_tokens=options.max_new_tokens,
        max_initial_timestamp_s=options.max_initial_timestamp_s,
        temperatures=options.temperatures,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        acceptance_threshold=options.acceptance_threshold,
        compression_ratio_threshold=options.compression_ratio_threshold,
        compression_ratio_of=COMPRESSION_RATIOS[options.compression_ratio_of],
        logprob_threshold=options.logprob_threshold,
        no_speech_threshold=options.no_speech_threshold,
        hallucination_silence_threshold=options.hallucination_silence_threshold,
        condition_on_previous_text=options.condition_on_previous_text,
        initial_prompt=options.initial_prompt,
        carry_initial_prompt=options.carry_initial_prompt,
        hotwords=options.hotwords,
        hint=options.hint,
        log_mel_max=options.log_mel_max,
        zero_padding=options.padding is Padding.ZERO,
        live=None if options.live is None else live_options_to_proto(options.live),
    )


def recognition_config_to_proto(options: DecodingOptions) -> transcription_pb2.RecognitionConfig:
    """Encode a client's options: those of decoding, and those that select the audio."""
    return transcription_pb2.RecognitionConfig(
        decoding=decoding_options_to_proto(options),
        channel=options.channel if options.channel != MIX else "",
        audio_track=options.audio_track,
        ignore_container_times=not options.container_times,
        strict=options.strict,
    )


def recognition_config_from_proto(message: transcription_pb2.RecognitionConfig) -> DecodingOptions:
    """Decode a client's options; the inverse of :func:`recognition_config_to_proto`."""
    return replace(
        decoding_options_from_proto(message.decoding),
        channel=message.channel or MIX,
        audio_track=message.audio_track or None,
        container_times=not message.ignore_container_times,
        strict=message.strict,
    )


def decoding_options_from_proto(message: pb.DecodingOptions) -> DecodingOptions:
    """Decode decoding options."""
    check_finite("log_mel_max", message.log_mel_max.values())
    if message.compression_ratio_of not in COMPRESSION_RATIO_OF_NUMBER:
        raise InvalidRequest(f"Compression ratio {message.compression_ratio_of} is unknown.")
    is_one = len(message.languages) == 1
    optional: dict[str, Any] = {name: getattr(message, name) for name in OPTIONAL if message.HasField(name)}
    if message.temperatures:
        optional["temperatures"] = tuple(message.temperatures)
    options = DecodingOptions.greedy if message.greedy else DecodingOptions
    return options(
        language=message.languages[0] if is_one else None,
        languages=() if is_one else tuple(message.languages),
        multilingual=message.multilingual,
        task=task_from_proto(message.task),
        word_timestamps=message.word_timestamps,
        word_times=WordTimes.MODEL if message.model_word_times else WordTimes.SOUND,
        top_k=message.top_k,
        seed=message.seed,
        compression_ratio_of=COMPRESSION_RATIO_OF_NUMBER[message.compression_ratio_of],
        condition_on_previous_text=message.condition_on_previous_text,
        initial_prompt=message.initial_prompt,
        carry_initial_prompt=message.carry_initial_prompt,
        hotwords=message.hotwords,
        hint=message.hint,
        **optional,
        log_mel_max=dict(message.log_mel_max),
        padding=Padding.ZERO if message.zero_padding else Padding.SILENCE,
        live=live_options_from_proto(message.live) if message.HasField("live") else None,
    )
