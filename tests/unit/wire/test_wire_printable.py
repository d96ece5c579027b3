"""Whatever does not print reaches neither a terminal nor a log."""

import pytest

from specwhisper.wire.printable import blanked, escaped
from specwhisper.wire.status import shorten

TEXT = "a\x1b[2Jb\x07c\u202ed\x9be\u2028f é 中 \U000e0041\ud800"


def test_escaped_text_can_be_read():
    assert escaped(TEXT) == r"a\x1b[2Jb\x07c\u202ed\x9be\u2028f é 中 \U000e0041\ud800"
    assert escaped("a\r\n\tb\\") == r"a\r\n\tb" + "\\"


def test_blanked_text_has_spaces_instead():
    assert blanked(TEXT) == "a [2Jb c d e f é 中   "


@pytest.mark.parametrize("twice", [False, True])
def test_a_sentence_from_a_peer_stays_on_its_line(twice):
    shortened = shorten(shorten(TEXT)) if twice else shorten(TEXT)
    assert shortened == escaped(TEXT)
