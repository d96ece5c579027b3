"""On human speech, final live text depends on the audio alone, and is what was said."""

from functools import cache

import pytest

from specwhisper.audio.speech import SileroVad
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Segment
from specwhisper_evaluation.comparison import error_rates
from tests.live_engines import LivePair, transcribe
from tests.nightly import mostly_nightly
from tests.real.pair import JFK, TEXTS, draft, pcm, target

NAMES = (JFK, "austen_0920.flac")


def live_text(
    *, drafts: bool = True, confirm_every_ms: int | None = None, sizes=(SAMPLE_RATE,), **how
) -> list[Segment]:
    pair = LivePair(target(), draft() if drafts else None)
    live = LiveOptions(confirm_every_ms=confirm_every_ms)
    options = DecodingOptions(language="en", condition_on_previous_text=False, live=live)
    vad = SileroVad("This test", "draft", "or leave it out")
    sound = EndpointingOptions(max_piece_ms=6_000)
    return transcribe(pair, pcm(*NAMES), options, endpointing=sound, open_vad=vad.open, sizes=sizes, **how)


@cache
def alone() -> list[Segment]:
    return live_text(drafts=False)


WAYS = {
    "full": {},
    "sent at once": {"sizes": (60 * SAMPLE_RATE,)},
    "late": {"sizes": (5_000, 33), "pace": ((3, 1), (0, 2), (50, 0))},
    "lost": {"breaks": (4, 11)},
    "confirmed": {"drafts": False, "confirm_every_ms": 1_000},
}


@pytest.mark.parametrize("way", mostly_nightly(WAYS, by_day=4))
def test_final_text_depends_on_the_audio_alone(way):
    assert live_text(**WAYS[way]) == alone()


def test_final_text_is_what_was_said():
    said, text = " ".join(TEXTS[name] for name in NAMES), "".join(segment.text for segment in alone())
    assert error_rates([said], [text], "en").wer <= 0.05
    assert len([segment for segment in alone() if segment.is_utterance_end]) > 1
