"""Hints are read from captions and from plain text, and reach each server that a session continues on."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper import read_hint
from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hint_files import find_hint
from specwhisper.transcription.hints import HintFeed, check_hint, hint_at
from specwhisper.types import TimedHint


def test_what_was_replaced_before_it_was_taken_is_never_sent():
    feed = HintFeed()
    for length in range(1, 1_000):
        feed.put(TimedHint(5, "a" * length))
    assert feed.take() == [TimedHint(5, "a" * 999)]
    assert feed.take() == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=30), st.integers(0, 9))
def test_taken_at_any_time_a_server_has_the_same_text(puts, start_sample):
    """Another one gets what may be said from its window on; a hint that began before may not be over."""
    feed, server = HintFeed(), []
    for number, (at, most) in enumerate([*puts, (9, None)]):
        feed.put(TimedHint(at, str(number)))
        for hint in feed.take(most):
            server = [kept for kept in server if kept.start_sample < hint.start_sample] + [hint]
    feed.restart()
    assert server == feed.take(2) + feed.take()
    feed.restart(start_sample)
    first = max([0, *(number for number, kept in enumerate(server) if kept.start_sample <= start_sample)])
    assert feed.take() == server[first:]


def test_the_oldest_are_forgotten_beyond_the_limit():
    feed = HintFeed()
    for sample in range(1_000):
        feed.put(TimedHint(sample, "x" * 4_000))
        if sample == 980:
            assert len(feed.take(10)) == 10
    kept = [hint.start_sample for hint in feed.take()]
    assert kept == list(range(1_000 - len(kept), 1_000))
    assert 30 < len(kept) <= 50
    feed.restart()
    assert feed.take()[-1].start_sample == 999


def test_text_that_is_no_unicode_and_times_before_the_audio_are_refused():
    assert hint_at(0.5, "a") == TimedHint(8_000, "a")
    for start_s, text in ((0, "\ud800"), (-1, "a"), (float("nan"), "a"), (float("inf"), "a"), (1e9, "a")):
        with pytest.raises(InvalidRequest, match=r"Unicode|start_s"):
            hint_at(start_s, text)


def test_a_long_text_is_refused_by_its_bytes():
    check_hint(TimedHint(0, "é" * 2_000))
    with pytest.raises(InvalidRequest, match="4002 bytes"):
        check_hint(TimedHint(0, "é" * 2_001))


SRT = (
    "1\n00:00:00,000 --> 00:00:02,000\n<i>Good</i> morning,\nall.\n\n2\n00:00:02,000 --> 00:00:03,000\nBye.\n"
)
VTT = "WEBVTT\n\n00:00.000 --> 00:02.000\n<v Bob>Good <i>day</i>,\n\n00:02.000 --> 00:04.000\nTom &amp; all\n"
NOTES = (
    "WEBVTT\n\nNOTE by Ann\nin a hurry\n\n00:00.000 --> 00:02.000\nNOTES are no\nNOTE or\n\nNOTE\n\n"
    "00:02.000 --> 00:04.000\ncomments.\n\nNOTE the end"
)

NAMED = (
    "WEBVTT\n\n3f2c1b00-77aa/13-0\n00:00:00.000 --> 00:00:02.000\n<v Ann>Good day,</v>\n"
    "<v Ann>all.</v>\n\nend\n00:00:02.000 --> 00:00:03.000\nBye.\n"
)
ROLLING = (
    "WEBVTT\nKind: captions\nLanguage: en\n\n00:00:00.000 --> 00:00:02.000 align:start position:0%\n \n"
    "so<00:00:00.400><c> we</c><00:00:01.100><c> began</c>\n\n"
    "00:00:02.000 --> 00:00:02.010\nso we began\n \n\n"
    "00:00:02.010 --> 00:00:04.000\nso we began\nto<00:00:03.000><c> look at it</c>\n\n"
    "00:00:04.000 --> 00:00:06.000\nto look at it\nand found it\n"
)
ASS = (
    "[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
    "Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,Second\n"
    "Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,Not said\n"
    "Dialogue: 0,0:00:00.00,0:00:09.00,Default,,0,0,0,,{\\p1}m 0 0 l 100 0 100 100{\\p0}\n"
    "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\i1}First{\\i0}, line\\Nand more\n"
)
TTML = (
    '<?xml version="1.0" encoding="UTF-8"?><tt xmlns="http://www.w3.org/ns/ttml"><body><div>'
    '<p begin="10000000t" end="20000000t">We <span>met</span><br/>\n   at\n   noon.</p>\n'
    '<p begin="20000000t">Bye &amp; bye.</p></div></body></tt>'
)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.srt", SRT, "Good morning,\nall.\nBye."),
        ("a.VTT", VTT, "Good day,\nTom & all"),
        ("a.vtt", NOTES, "NOTES are no\nNOTE or\ncomments."),
        ("a.vtt", NAMED, "Good day,\nall.\nBye."),
        ("a.vtt", ROLLING, "so we began\nto look at it\nand found it"),
        ("a.srt", "\n\n".join(reversed(SRT.split("\n\n"))), "Good morning,\nall.\nBye."),
        ("a.srt", SRT.replace("\n", "\r\n"), "Good morning,\nall.\nBye."),
        ("a.ass", ASS, "First, line\nand more\nSecond"),
        ("a.ttml", TTML, "We met\nat noon.\nBye & bye."),
        ("a.txt", "from A --> B", "from A --> B"),
        ("a.txt", "\ufeffGood morning,\nall.\n", "Good morning,\nall."),
        ("script", "1 < 2", "1 < 2"),
        (
            "a.txt",
            "[00:00.000 --> 00:04.000]  Good day,\n[01:00:04.000 --> 01:00:05.000]  all.",
            "Good day,\nall.",
        ),
        ("a.json", '{"text": " Good day, all.", "segments": []}', "Good day, all."),
        ("a.json", '{"segments": [{"text": " Good day,"}, {"text": " all."}]}', "Good day,\nall."),
        ("a.json", '{"transcription": [{"text": " Good day."}]}', "Good day."),
        ("a.dfxp", TTML, "We met\nat noon.\nBye & bye."),
        (
            "a.sbv",
            "0:00:00.000,0:00:02.000\nGood day,\n\n0:00:02.000,0:00:03.000\nall.",
            "Good day,\n\n\nall.",
        ),
        ("a.tsv", "start\tend\ttext\n0\t2000\tGood day,\n2000\t3000\tall.\n", "Good day,\nall."),
    ],
)
def test_a_file_has_the_text_of_its_captions(tmp_path, name, content, text):
    (tmp_path / name).write_text(content, "utf-8")
    assert read_hint(tmp_path / name) == text
    assert read_hint(str(tmp_path / name)) == text


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("none.srt", None, r"none\.srt cannot be read"),
        ("a.txt", b"\xff\xfe\xfa", r"a\.txt cannot be read as text"),
        ("a.txt", b" \n", r"a\.txt has no text"),
        ("a.srt", b"", r"a\.srt has no text"),
        ("b.srt", b"1\n00:00:01,000 --> 00:00:02,000\n\n", r"b\.srt has no text"),
        ("a.txt", SRT.encode(), r"a\.txt holds captions: name it \.srt"),
        ("b.txt", TTML.encode(), r"b\.txt holds captions: name it .*\.ttml"),
        ("a.ttml", b"<tt><body>", r"a\.ttml does not hold captions"),
        ("a.srt", b"A script, and no captions.", r"a\.srt does not hold captions \(there are none\)"),
        *(
            ("a.json", content, r"a\.json is not a transcript in JSON")
            for content in (b"[]", b"{", b'{"text": 5}', b'"text"', b'{"segments": [5]}')
        ),
    ],
)
def test_a_file_without_a_hint_is_named(tmp_path, name, content, problem):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=problem):
        read_hint(tmp_path / name)


def test_a_pipe_is_read_and_a_device_without_end_is_refused():
    with pytest.raises(InvalidRequest, match=r"/dev/zero has more than 4000000 bytes: its text may have"):
        read_hint("/dev/zero")
    reading, writing = os.pipe()
    os.write(writing, b"Good day.")
    os.close(writing)
    assert read_hint(f"/dev/fd/{reading}") == "Good day."
    os.close(reading)


@pytest.mark.parametrize("suffix", [".srt", ".vtt", ".ass", ".ttml", ".txt", ".tsv", ".json"])
@pytest.mark.parametrize(
    "part",
    [
        "<",
        "<a",
        "< ",
        "{",
        "{}",
        "{\\i1}",
        "[",
        "0:00:00",
        "0:00 ",
        "1 ",
        " ",
        "-",
        "-->",
        "\n",
        "\n\nNOTE",
        "a\n",
        "&#",
    ],
)
def test_the_time_to_read_a_file_grows_with_its_length_alone(tmp_path, suffix, part):
    path = tmp_path / f"a{suffix}"
    header = "00:00:01,000 --> 00:00:02,000\n<"
    if suffix == ".vtt":
        header = "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n"
    if suffix == ".ass":
        header = ASS.partition("Second")[0]
    path.write_text(header + part * (200_000 // len(part)), "utf-8")
    began_s = time.process_time()
    with suppress(InvalidRequest):
        read_hint(path)
    assert time.process_time() - began_s < 2


def test_an_error_does_not_quote_a_whole_file(tmp_path):
    path = tmp_path / "a.ass"
    path.write_text(ASS.partition("Second")[0].replace("0:00:0", "1" * 10_000, 1), "utf-8")
    with pytest.raises(InvalidRequest, match="does not hold captions") as refused:
        read_hint(path)
    assert len(str(refused.value)) < 500


def test_captions_nested_however_deep_are_read(tmp_path):
    path = tmp_path / "a.ttml"
    for name in ("span", "p", "div"):
        opened, closed = f"<{name}>" * 100_000, f"</{name}>" * 100_000
        path.write_text(f"<tt><body>{opened}<p>deep</p>{closed}</body></tt>", "utf-8")
        assert read_hint(path) == "deep"


def test_a_folder_has_hints_by_the_names_of_recordings(tmp_path):
    (tmp_path / "talk.1.srt").write_text(SRT, "utf-8")
    (tmp_path / "talk.2.txt").write_text("a script", "utf-8")
    assert read_hint(find_hint(tmp_path, Path("other/talk.1.flac"))) == "Good morning,\nall.\nBye."
    assert read_hint(find_hint(tmp_path, Path("talk.2.mp3"))) == "a script"
    assert find_hint(tmp_path, Path("talk.3.mp3")) is None
    (tmp_path / "TALK.SRT").write_text(SRT, "utf-8")
    assert read_hint(find_hint(tmp_path, Path("TALK.WAV"))) == "Good morning,\nall.\nBye."


def test_a_hint_may_be_named_after_its_language(tmp_path):
    (tmp_path / "talk.en-US.vtt").write_text(VTT, "utf-8")
    (tmp_path / "talk.info.txt").write_text("no language", "utf-8")
    assert find_hint(tmp_path, Path("talk.mp3")) == tmp_path / "talk.en-US.vtt"
    (tmp_path / "talk.de.vtt").write_text(VTT, "utf-8")
    assert find_hint(tmp_path, Path("talk.mp3")) is None, "which one is not known"
