"""Every value survives the wire."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import UnsupportedOption
from specwhisper.live import EndpointingOptions, FinalPiece, LiveOptions, LivePosition
from specwhisper.options import MIN_TEMPERATURE, DecodingOptions, Task
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.resume_point import ResumePoint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    SERVER_MODES,
    WINDOW_FRAMES,
    WINDOW_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    CompletePiece,
    ConfirmEvery,
    Limits,
    Mode,
    Outcome,
    Resume,
    TimedHint,
    Timing,
    VoiceEvent,
    VoiceMark,
    Window,
    WindowOpened,
    WordAlignment,
)
from specwhisper.validated import option_of
from specwhisper.wire import codec
from specwhisper.wire.codec.messages import MAX_LOG_PROB, MAX_START_FRAME, MAX_WINDOW_ID
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1.decoding_pb2 import DecodingOptions as OptionsProto
from specwhisper.wire.v1.decoding_pb2 import LiveOptions as LiveProto
from specwhisper.wire.v1.transcription_pb2 import Endpointing, RecognitionConfig

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
positive = st.integers(1, 2**32 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
single = st.floats(width=32, allow_nan=False)  # what a float field can hold
probability = st.floats(0, 1, width=32)
text = st.text(max_size=8)
ids = st.lists(uint32, max_size=8).map(tuple)
maybe = st.none().__or__
probs = st.dictionaries(text, probability, max_size=2)
BY_TYPE = {
    "int": uint32,
    "int | None": maybe(uint32),
    "bool": st.booleans(),
    "str": text,
    "float | None": maybe(finite),
    "tuple[int, ...]": ids,
    "list[int]": st.lists(uint32, max_size=4),
    "Mapping[str, float]": probs,
    "Outcome": st.sampled_from(Outcome),
}


def built(kind, **special) -> st.SearchStrategy:
    """Return values of a dataclass: a field without a strategy of its own has that of its option or type."""
    strategies = {each.name: values_of(each) for each in fields(kind)} | special
    return st.builds(kind, **{name: found for name, found in strategies.items() if found is not None})


def values_of(field) -> st.SearchStrategy | None:
    """Return the values that an option allows, by its bounds or choices, or those of a field's type."""
    about = option_of(field)
    if about is None or not (about.bounds or about.choices):
        return BY_TYPE.get(field.type)
    if about.choices:
        return st.sampled_from(about.choices)
    lowest, highest = about.bounds
    if field.type.startswith("int"):
        found = st.integers(lowest, min(highest, 2**32 - 1))
    else:
        found = st.floats(lowest, highest)
    return maybe(found) if "None" in field.type else found


@st.composite
def positions(draw: st.DrawFn) -> LivePosition:
    places = draw(st.lists(st.integers(0, 2**50), min_size=1, max_size=4, unique=True).map(sorted))
    *starts, next_sample = (320 * place for place in places)
    return LivePosition(
        next_sample,
        draw(st.integers(0, 2**31)),
        draw(st.booleans()),
        tuple(FinalPiece(start, draw(ids)) for start in starts),
        draw(maybe(text.filter(bool))),
    )


live_options = built(LiveOptions)
endpointing = built(EndpointingOptions, threshold=st.floats(0.0625, 0.9375, width=32))
of_recordings = dict.fromkeys(("multilingual", "hallucination_silence_threshold", "audio_track"), None)
options = built(
    DecodingOptions,
    **of_recordings,
    language=maybe(text.filter(bool)),
    max_new_tokens=maybe(positive),
    temperatures=st.lists(st.just(0.0) | st.floats(MIN_TEMPERATURE, 9), min_size=1, max_size=5, unique=True)
    .map(sorted)
    .map(tuple),
    initial_prompt=st.text(min_size=1, max_size=8).filter(str.strip),
    log_mel_max=st.dictionaries(uint32, finite, max_size=2),
    vad_filter=None,
    channel=None,
    strict=None,
    container_times=None,
) | st.one_of(  # which contradict some of the above
    st.builds(DecodingOptions.greedy, live=live_options),
    st.sampled_from(
        [
            DecodingOptions.greedy(multilingual=True),
            DecodingOptions.greedy(languages=("de", "en")),
            DecodingOptions.greedy(word_timestamps=True, hallucination_silence_threshold=2.0),
        ]
    ),
)
limits = st.builds(Limits, positive, positive, max_ahead_samples=st.integers(3 * WINDOW_SAMPLES, 2**64 - 1))
windows = built(
    Window,
    id=st.integers(0, MAX_WINDOW_ID),
    start_frame=st.integers(0, MAX_START_FRAME),
    num_frames=st.integers(0, WINDOW_FRAMES),
    max_new_tokens=st.integers(8, 448),
    temperature=st.floats(0, 1),
)
chunks = built(
    AudioChunk,
    pcm=st.binary(max_size=200).filter(lambda pcm: len(pcm) % 2 == 0),
    marks=st.lists(st.builds(VoiceMark, st.sampled_from(VoiceEvent), uint64), max_size=3).map(tuple),
)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    tokens = draw(ids)
    return draw(
        built(
            Commit,
            tokens=st.just(tokens),
            log_probs=st.just(()) | st.tuples(*[single] * len(tokens)),
            margins=None,
            words=st.lists(st.builds(WordAlignment, uint32, uint32, uint64, uint64), max_size=2).map(tuple),
            piece=maybe(built(CompletePiece)),
            no_speech_prob=maybe(probability),
            timing=built(Timing),
        )
    )


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    tokens = tuple(draw(st.lists(text, min_size=1, max_size=8)))
    token = st.integers(0, len(tokens) - 1)
    return Vocabulary(
        tokens=tokens,
        end_of_text=draw(token),
        start_of_transcript=draw(token),
        no_timestamps=draw(maybe(token)),
        timestamp_begin=draw(st.integers(0, len(tokens))),
        languages=draw(st.dictionaries(text, token, max_size=2)),
        tasks=draw(st.dictionaries(text, token, max_size=2)),
        suppress=tuple(draw(st.lists(token, max_size=3))),
        begin_suppress=tuple(draw(st.lists(token, max_size=3))),
        max_initial_timestamp=draw(maybe(uint32)),
        max_length=draw(uint32),
        start_of_prev=draw(maybe(token)),
        no_speech=draw(maybe(token)),
    )


log_probs = st.lists(st.floats(max_value=MAX_LOG_PROB, width=32), max_size=4).map(tuple)
resumes = st.builds(Resume, windows, ids, maybe(finite), log_probs, ids)
openings = built(WindowOpened, window=windows)
statistics = built(SpeculationStatistics)
hints = st.builds(TimedHint, st.integers(0, 2**40), st.text(max_size=100))
ROUND_TRIPS = {
    "decoding_options": options,
    "live_position": positions(),
    "endpointing": maybe(endpointing),
    "limits": limits,
    "window": windows,
    "audio_chunk": chunks,
    "candidates": built(Candidates),
    "hint": hints,
    "recognition_config": options,
    "confirm_every": st.builds(ConfirmEvery, st.none() | st.integers(100, 10_000)),
    "resume": resumes,
    "window_opened": openings,
    "commit": commits(),
    "vocabulary": vocabularies(),
    "statistics": statistics,
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
@given(data=st.data())
def test_decoding_returns_the_encoded_value(name, data):
    value = data.draw(ROUND_TRIPS[name])
    message = getattr(codec, f"{name}_to_proto")(value)
    arrived = type(message).FromString(message.SerializeToString())
    assert getattr(codec, f"{name}_from_proto")(arrived) == value


def test_every_conversion_has_its_inverse_and_is_tested():
    names = {name.removesuffix("_to_proto") for name in vars(codec) if name.endswith("_to_proto")}
    assert names == {name.removesuffix("_from_proto") for name in vars(codec) if name.endswith("_from_proto")}
    assert names == {*ROUND_TRIPS, "mode", "resume_point"}


recordings = st.builds(
    lambda resume, *more: ResumePoint(replace(resume, log_probs=(-1.0,) * len(resume.committed)), *more),
    resumes,
    st.booleans(),
    maybe(probability),
    st.dictionaries(text, probability, max_size=2),
)


@given(
    recordings.filter(lambda point: len(point.resume.committed) <= point.resume.window.max_new_tokens)
    | st.builds(replace, positions(), num_ends=st.integers(0, 2**31))
)
def test_resume_points_survive(progress):
    message = codec.resume_point_to_proto(progress, "weights")
    assert codec.resume_point_weights(message) == "weights"
    assert codec.resume_point_from_proto(message, "weights", vocabulary_size=2**32) == progress


@given(positions(), st.integers(0, 2**50), st.integers(0, 9))
def test_live_audio_that_is_lost_is_left_out(position, later, num_ends):
    message = codec.resume_point_to_proto(position, "weights")
    message.start_sample += 320 * later
    message.num_ends = num_ends
    found = codec.resume_point_from_proto(message, "weights", vocabulary_size=2**32)
    if later:
        start_sample = max(position.next_sample, message.start_sample)
        assert found == LivePosition(start_sample, position.num_utterances, num_ends=num_ends)
    else:
        assert found == replace(position, num_ends=num_ends)


@given(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=100))
def test_flac_changes_no_sample(samples):
    chunk = AudioChunk(160, np.array(samples, "<i2").tobytes(), is_last=True)
    message = codec.audio_chunk_to_proto(chunk, compress=True)
    flac, raw = decoding_pb2.AUDIO_ENCODING_FLAC, decoding_pb2.AUDIO_ENCODING_LINEAR16
    assert message.encoding == (flac if samples else raw)
    assert codec.audio_chunk_from_proto(message) == chunk


def test_modes_of_servers_survive():
    for mode in SERVER_MODES:
        assert codec.mode_from_proto(codec.mode_to_proto(mode)) is mode
        assert codec.mode_to_proto(mode.value) == codec.mode_to_proto(mode)
    with pytest.raises(UnsupportedOption, match="one-process"):
        codec.mode_to_proto(Mode.ONE_PROCESS)


def test_every_option_is_a_field_of_its_name():
    sent = {field.name for field in OptionsProto.DESCRIPTOR.fields} - {"greedy"}  # what absence means
    sent |= {field.name for field in RecognitionConfig.DESCRIPTOR.fields} & {
        field.name for field in fields(DecodingOptions)
    }
    of_the_client = {"vad_filter", "vad_parameters"}  # only speech is sent
    assert sent == {field.name for field in fields(DecodingOptions)} - of_the_client - {
        "language"
    }  # one of `languages`
    for message, kind in ((LiveProto, LiveOptions), (Endpointing, EndpointingOptions)):
        assert {field.name for field in message.DESCRIPTOR.fields} - {"disabled"} == {
            field.name for field in fields(kind)
        }


def test_an_unset_task_means_transcribe():
    assert codec.decoding_options_from_proto(OptionsProto()).task is Task.TRANSCRIBE
