"""A real draft with another tokenizer is often right, and silent in languages that it lacks."""

from __future__ import annotations

from specwhisper.types import Mode
from tests.real.pair import RECORDINGS, options_for, pcm, transcribed


def test_an_english_draft_is_mostly_right():
    texts = [transcribed(Mode.SYNC, pcm(name), options_for(pcm(name), language="en")) for name in RECORDINGS]
    accepted = sum(text.stats.num_accepted for text in texts)
    assert accepted >= 0.75 * sum(text.stats.num_verified for text in texts)
    tokens = sum(text.stats.num_committed for text in texts)
    assert tokens >= 3 * sum(text.stats.num_forwards for text in texts)


def test_an_english_draft_sends_nothing_in_french():
    audio = pcm("austen_0880.flac")
    for options in ({"language": "fr"}, {"language": "en", "task": "translate"}):
        text = transcribed(Mode.FULL, audio, options_for(audio, **options))
        assert text.stats.num_drafted == text.stats.num_verified == 0
