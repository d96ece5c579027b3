"""Audio that is kept until its text is final can be read again unchanged."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.audio.kept import KeptAudio
from specwhisper.types import EndUtterance
from tests.nightly import examples


def samples(start: int, end: int) -> bytes:
    """Return audio in which each sample is its own index."""
    return b"".join((sample % 65_536).to_bytes(2, "little") for sample in range(start, end))


async def read(audio: KeptAudio, sample: int) -> bytes:
    return b"".join([piece async for piece in audio.pieces(sample) if isinstance(piece, bytes)])


async def test_every_end_reaches_every_reader_until_it_is_answered():
    audio = KeptAudio()
    audio.end_utterance()
    await audio.put(samples(0, 2_000))
    audio.end_utterance()
    audio.end_utterance()
    await audio.put(samples(2_000, 2_500))
    following = asyncio.create_task(ends_of(audio, 0))
    await asyncio.sleep(0)
    audio.end_utterance()
    await asyncio.sleep(0)
    assert await ends_of(audio, 0, until=2_500) == [0, 2_000, 2_000, 2_500]
    audio.forget_ends(2)
    assert await ends_of(audio, 1_999, until=2_500) == [2_000, 2_500]
    assert await ends_of(audio, 2_200, until=2_500) == [2_200, 2_500], "that at 2,000 is not answered"
    audio.forget_ends_before(2_001)
    audio.forget_before(2_200)
    assert await ends_of(audio, 2_200, until=2_500) == [2_500]
    audio.finish()
    audio.end_utterance()
    assert await following == [0, 2_000, 2_000, 2_500]
    assert await read(audio, 0) == samples(2_200, 2_500)


async def ends_of(audio: KeptAudio, sample: int, until: int | None = None) -> list[int]:
    """Read audio, up to an end if ``until`` is given; return the samples at which utterances end."""
    ends: list[int] = []
    async for piece in audio.pieces(sample):
        if isinstance(piece, EndUtterance):
            ends.append(sample)
            if sample == until:
                break
        else:
            sample += len(piece) // 2
    return ends


async def test_audio_that_a_reader_needs_is_kept_before_it_begins():
    audio = KeptAudio()
    await audio.put(samples(0, 100))
    audio.forget_before(50)
    assert audio.num_samples == 100, "none of it is read"
    pieces = audio.pieces(20)
    await audio.put(samples(100, 200))
    audio.forget_before(150)
    audio.finish()
    assert b"".join([piece async for piece in pieces]) == samples(20, 200)


async def test_more_audio_may_be_unread_from_some_moment_on():
    audio = KeptAudio(max_unread_s=0.1)
    putting = asyncio.create_task(audio.put(samples(0, 3_300)))
    await asyncio.sleep(0)
    audio.allow_unread(0.2)
    await asyncio.sleep(0)
    assert not putting.done()
    audio.allow_unread(0.3)
    await putting


@pytest.mark.parametrize("ends", [False, True])
async def test_a_writer_waits_while_too_much_audio_is_unread(ends):
    audio = KeptAudio(max_unread_s=0.1)
    await audio.put(samples(0, 1_600))
    putting = asyncio.create_task(audio.put(samples(1_600, 3_300)))
    await asyncio.sleep(0)
    assert not putting.done()
    if ends:
        audio.finish()
    else:
        pieces = audio.pieces(0)
        await anext(pieces)
        await asyncio.sleep(0)
        assert not putting.done(), "a hundred unread samples too many are left"
        await anext(pieces)
    await putting


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "forget", "read", "read on"]), st.integers(0, 5_000)), max_size=30
)


@settings(max_examples=examples(30, 100), deadline=None)
@given(start=st.integers(0, 1_000), steps=STEPS)
def test_audio_that_is_read_again_is_the_same(start, steps):
    async def run() -> None:
        audio, end, forgotten = KeptAudio(start), start, start
        readers: list[tuple[asyncio.Task[bytes], int]] = [(asyncio.create_task(read(audio, start)), start)]
        for what, number in steps:
            if what == "put":
                await audio.put(samples(end, end + number))
                end += number
            elif what == "forget":
                forgotten = max(forgotten, min(number, end))
                audio.forget_before(number)
            elif what == "read":
                position = max(forgotten, min(number, end))
                readers.append((asyncio.create_task(read(audio, position)), position))
            for _ in range(8):
                await asyncio.sleep(0)  # readers read all audio before any of it is forgotten
            assert audio.num_samples == end - forgotten
        audio.finish()
        for reader, position in readers:
            assert await reader == samples(position, end)

    asyncio.run(run())


async def test_waiting_for_audio_ends_with_more_or_with_the_end():
    audio = KeptAudio(50)
    await audio.put(samples(50, 100))
    assert await audio.continues_after(99)
    waiting = asyncio.create_task(audio.continues_after(100))
    await audio.put(b"")
    await asyncio.sleep(0)
    assert not waiting.done()
    await audio.put(samples(100, 101))
    assert await waiting
    audio.finish()
    assert not await audio.continues_after(101)
