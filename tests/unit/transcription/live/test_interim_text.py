"""Text that may change leaves out incomplete characters; final text does not."""

from dataclasses import replace

import pytest

from experiments.common.models.scripted import END, VOCABULARY
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary
from specwhisper.types import Candidates, Commit, CompletePiece, Window, WindowOpened

CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
WORD = "日本語"
WHOLE = ["", "", "", "日", "日", "日", "日本", "日本", "日本", "日本語"]  # by number of bytes


def of_bytes(text: bytes) -> Vocabulary:
    """Return a vocabulary whose first tokens are the bytes of a text, in order."""
    tokens = [CHARACTER_OF_BYTE[byte] for byte in text]
    return replace(VOCABULARY, tokens=(*tokens, *VOCABULARY.tokens[len(tokens) :]), max_length=448)


JAPANESE = of_bytes(WORD.encode())
TOKENS = tuple(range(len(WORD.encode())))
OPENED = WindowOpened(Window(0, 0, 3000, (END + 1,), 60))


def commit(end: int, **changes) -> Commit:
    return Commit(0, 0, TOKENS[:end], (-0.1,) * end, **changes)


@pytest.mark.parametrize("num_drafted", range(len(TOKENS) + 1))
@pytest.mark.parametrize("num_verified", range(len(TOKENS) + 1))
def test_unfinished_text_has_whole_characters(num_verified, num_drafted):
    verified, drafted = TOKENS[:num_verified], TOKENS[num_verified:num_drafted]
    text = JAPANESE.decode_unfinished(verified) + JAPANESE.decode_unfinished(drafted, after=verified)
    assert text == WHOLE[max(num_verified, num_drafted)]


def test_broken_text_is_shown_as_in_final_text_and_nothing_waits_for_its_rest():
    vocabulary = of_bytes(b"a\xff\xa5b")
    assert vocabulary.decode_unfinished(range(4)) == vocabulary.decode(range(4)) == "a\ufffd\ufffdb"
    broken_off = of_bytes(b"\xe6\x97\xe6\x9c\xac")
    assert broken_off.decode_unfinished((2, 3, 4), after=(0, 1)) == "本"


@pytest.mark.parametrize("end", range(1, len(TOKENS) + 1))
def test_a_transcript_has_incomplete_characters_once_it_is_final(end):
    builder, live = TranscriptBuilder(JAPANESE), LiveTranscript(JAPANESE)
    for transcript in (builder, live):
        transcript.observe(OPENED)
    builder.observe(commit(end - 1))
    builder.observe(Candidates(0, end - 1, 0, TOKENS[end - 1 : end]))
    assert builder.verified_text + builder.tentative_text == WHOLE[end]
    live.observe(commit(end, is_final=True))  # of a piece that grows
    assert live.verified_text == WHOLE[end]
    live.observe(OPENED)
    for transcript in (builder, live):
        (segment,) = transcript.observe(commit(end, is_final=True, piece=CompletePiece(1, 0, True)))
        assert segment.text == WORD.encode()[:end].decode(errors="replace")
