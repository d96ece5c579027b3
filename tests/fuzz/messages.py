"""Draw messages of any protobuf type, and their bytes, valid and broken."""

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.wire.v1 import verification_pb2 as pb

F = FieldDescriptor
MAX_ITEMS = 6
INTEGERS = {
    kind: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    for kinds, bits, signed in (
        ((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), 32, True),
        ((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), 64, True),
        ((F.TYPE_UINT32, F.TYPE_FIXED32), 32, False),
        ((F.TYPE_UINT64, F.TYPE_FIXED64), 64, False),
    )
    for kind in kinds
}
LIKELY = [0, 1, 2, 7, 16, 31, 64, 160, 1500, 3000, 8000, 16_000, 48_000, 2**31 - 1, 2**31, 2**32 - 1, 2**62]


@cache
def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in INTEGERS:
        lowest, highest = INTEGERS[field.type]
        likely = [number for number in LIKELY if lowest <= number <= highest]
        return st.sampled_from([*likely, lowest, highest]) | st.integers(lowest, highest)
    match field.type:
        case F.TYPE_BOOL:
            return st.booleans()
        case F.TYPE_STRING:
            return st.sampled_from(["", "en", "de-DE", "xx", "<|en|>"]) | st.text(
                st.characters(codec="utf-8"), max_size=12
            )
        case F.TYPE_BYTES:
            return st.binary(max_size=64)
        case F.TYPE_ENUM:
            numbers = [value.number for value in field.enum_type.values]
            return st.sampled_from([*numbers, max(numbers) + 1, 2**31 - 1])
        case F.TYPE_FLOAT:
            return st.sampled_from([0.0, 0.5, 1.0]) | st.floats(width=32)
        case F.TYPE_DOUBLE:
            return st.sampled_from([0.0, 0.5, 1.0]) | st.floats()
    raise TypeError(f"Field {field.full_name} has a type that is not known here.")


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 4) -> Message:
    message = GetMessageClass(descriptor)()
    fields = [field for field in descriptor.fields if depth or field.message_type is None]
    if not fields:
        return message
    for field in draw(st.lists(st.sampled_from(fields), max_size=MAX_ITEMS, unique=True)):
        _fill(draw, message, field, depth)
    return message


def _fill(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        entries = getattr(message, field.name)
        for _ in range(draw(st.integers(0, 2))):
            key = draw(values(kind.fields_by_name["key"]))
            if (value := kind.fields_by_name["value"]).message_type is None:
                entries[key] = draw(values(value))
            else:
                entries[key].MergeFrom(draw(messages(value.message_type, depth - 1)))
    elif kind is not None and field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(messages(kind, depth - 1), max_size=2)))
    elif kind is not None:
        getattr(message, field.name).MergeFrom(draw(messages(kind, depth - 1)))
        getattr(message, field.name).SetInParent()
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(values(field), max_size=MAX_ITEMS)))
    else:
        setattr(message, field.name, draw(values(field)))


@st.composite
def broken(draw: st.DrawFn, descriptor: Descriptor) -> bytes:
    """Draw a message's bytes: truncated, changed, or with others appended."""
    data = bytearray(draw(messages(descriptor)).SerializeToString())
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=8))


def requests(descriptor: Descriptor) -> st.SearchStrategy[bytes]:
    """Draw bytes that may arrive where a message of this type is expected."""
    whole = messages(descriptor).map(lambda message: message.SerializeToString())
    return whole | broken(descriptor) | st.binary(max_size=32)


SIZE = len(VOCABULARY)
TOKENS = st.sampled_from([0, 1, 7, END, TIME, TIME + 1500]) | st.integers(0, SIZE - 1)


@st.composite
def resumes(draw: st.DrawFn) -> pb.Resume:
    """Draw a resume point as an attacker may forge it: a valid or changed window, mostly valid tokens."""
    window = pb.Window(id=1, num_frames=3000, prompt=[END + 1], max_new_tokens=60)
    window.MergeFrom(draw(st.just(pb.Window()) | messages(pb.Window.DESCRIPTOR)))
    committed = draw(st.lists(TOKENS | st.integers(0, 20), max_size=4))
    committed += draw(st.sampled_from([[], [], [], [SIZE]]))
    log_probs = [-0.5] * len(committed)
    if draw(st.booleans()):
        log_probs = draw(st.lists(st.floats(width=32), max_size=4))
    resume = pb.Resume(window=window, committed=committed, log_probs=log_probs)
    if draw(st.booleans()):
        resume.window.log_mel_max = draw(st.floats())
    resume.window.previous.extend(draw(st.lists(TOKENS, max_size=4)))
    return resume
