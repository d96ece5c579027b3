"""Whatever does not print reaches neither a terminal nor a log."""

import json

import pytest

from specwhisper.printable import CONTROL, DIRECTION, blanked, escaped, escaped_json
from specwhisper.wire.status import shorten

TEXT = "a\x1b[2Jb\x07c\u202ed\x9be\u2028f é 中 \U000e0041\ud800"


def test_escaped_text_can_be_read():
    assert escaped(TEXT) == r"a\x1b[2Jb\x07c\u202ed\x9be\u2028f é 中 \U000e0041\ud800"
    assert escaped("a\r\n\tb\\") == r"a\r\n\tb" + "\\"


def test_blanked_text_has_spaces_instead():
    assert blanked(TEXT) == "a [2Jb cd e f é 中 \U000e0041 "
    joined = "\u0645\u06cc\u200c\u062e 👩\u200d👧"
    assert blanked(joined) == joined, "joiners are part of words and emoji"


def test_json_keeps_its_value_and_loses_its_control_characters():
    document = json.dumps({"text": TEXT}, ensure_ascii=False)
    assert json.loads(escaped_json(document)) == {"text": TEXT}
    assert escaped_json(escaped_json(document)) == escaped_json(document)
    assert not DIRECTION.search(escaped_json(document)) and not CONTROL.search(escaped_json(document))


@pytest.mark.parametrize("twice", [False, True])
def test_a_sentence_from_a_peer_stays_on_its_line(twice):
    shortened = shorten(shorten(TEXT)) if twice else shorten(TEXT)
    assert shortened == escaped(TEXT)
