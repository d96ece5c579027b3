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
def test_text_of_recordings_has_whole_characters(num_verified, num_drafted):
    builder = TranscriptBuilder(JAPANESE)
    builder.observe(OPENED)
    builder.observe(commit(num_verified))
    builder.observe(Candidates(0, num_verified, 0, TOKENS[num_verified:num_drafted]))
    assert builder.verified_text == WHOLE[num_verified]
    assert builder.verified_text + builder.tentative_text == WHOLE[max(num_verified, num_drafted)]


@pytest.mark.parametrize("num_verified", range(len(TOKENS) + 1))
def test_verified_text_of_live_audio_has_whole_characters(num_verified):
    transcript = LiveTranscript(JAPANESE)
    transcript.observe(OPENED)
    transcript.observe(commit(num_verified, is_final=True))  # of a piece that grows
    assert transcript.verified_text == WHOLE[num_verified]


def test_tentative_text_after_an_incomplete_character_is_shown():
    """The verified text before it ends within a character."""
    vocabulary = of_bytes(b"\xe6\x97\xe6\x9c\xac")
    assert vocabulary.decode_unfinished((2, 3, 4), after=(0, 1)) == "本"


def test_invalid_bytes_are_shown_as_in_final_text():
    vocabulary = of_bytes(b"a\xff\xa5b")
    assert vocabulary.decode_unfinished(range(4)) == vocabulary.decode(range(4)) == "a\ufffd\ufffdb"


@pytest.mark.parametrize("end", range(1, len(TOKENS) + 1))
def test_final_text_has_incomplete_characters(end):
    text = WORD.encode()[:end].decode(errors="replace")
    builder = TranscriptBuilder(JAPANESE)
    builder.observe(OPENED)
    (segment,) = builder.observe(commit(end, is_final=True))
    assert segment.text == text
    live = LiveTranscript(JAPANESE)
    live.observe(OPENED)
    (segment,) = live.observe(commit(end, is_final=True, piece=CompletePiece(1, 0, True)))
    assert segment.text == text
