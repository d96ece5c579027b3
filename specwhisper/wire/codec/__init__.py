"""Convert domain types to protobuf and back; no other module does.

Each ``x_from_proto`` validates its message and raises an error of one clear sentence. It returns a value
equal to the one that ``x_to_proto`` converted, except that probabilities have single precision on the wire.
"""

from specwhisper.wire.codec.messages import (
    audio_chunk_from_proto,
    audio_chunk_to_proto,
    candidates_from_proto,
    candidates_to_proto,
    commit_from_proto,
    commit_to_proto,
    confirm_every_from_proto,
    confirm_every_to_proto,
    resume_from_proto,
    resume_to_proto,
    window_from_proto,
    window_opened_from_proto,
    window_opened_to_proto,
    window_to_proto,
)
from specwhisper.wire.codec.resume_points import (
    live_position_from_proto,
    live_position_to_proto,
    resume_point_from_proto,
    resume_point_to_proto,
    resume_point_weights,
)
from specwhisper.wire.codec.terms import (
    decoding_options_from_proto,
    decoding_options_to_proto,
    endpointing_from_proto,
    endpointing_to_proto,
    hint_from_proto,
    hint_to_proto,
    limits_from_proto,
    limits_to_proto,
    mode_from_proto,
    mode_to_proto,
    recognition_config_from_proto,
    recognition_config_to_proto,
    statistics_from_proto,
    statistics_to_proto,
    vocabulary_from_proto,
    vocabulary_to_proto,
)
