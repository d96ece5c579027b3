"""Hints are read from captions and from plain text."""

from __future__ import annotations

from pathlib import Path

import pytest

from specwhisper import read_hint
from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints import file
from specwhisper.transcription.hints.file import find_hint

SRT = (
    "1\n00:00:00,000 --> 00:00:02,000\n<i>Good</i> morning,\nall.\n\n2\n00:00:02,000 --> 00:00:03,000\nBye.\n"
)
VTT = "WEBVTT\n\n00:00.000 --> 00:02.000\n<v Bob>Good <i>day</i>,\n\n00:02.000 --> 00:04.000\nTom &amp; all\n"
NOTES = (
    "WEBVTT\n\nNOTE by Ann\nin a hurry\n\n00:00.000 --> 00:02.000\nNOTES are no\nNOTE or\n\nNOTE\n\n"
    "00:02.000 --> 00:04.000\ncomments.\n\nNOTE the end"
)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.srt", SRT, "Good morning,\nall.\nBye."),
        ("a.VTT", VTT, "Good day,\nTom & all"),
        ("a.vtt", NOTES, "NOTES are no\nNOTE or\ncomments."),
        ("a.txt", "\ufeffGood morning,\nall.\n", "Good morning,\nall."),
        ("script", "1 < 2", "1 < 2"),
    ],
)
def test_a_file_has_the_text_of_its_captions(tmp_path, name, content, text):
    (tmp_path / name).write_text(content, "utf-8")
    assert read_hint(tmp_path / name) == text
    assert read_hint(str(tmp_path / name)) == text


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.srt cannot be read"):
        read_hint(tmp_path / "none.srt")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InvalidRequest, match=r"a\.txt cannot be read as text"):
        read_hint(tmp_path / "a.txt")


def test_a_file_without_text_is_named(tmp_path):
    for name, content in (("a.txt", " \n"), ("a.srt", ""), ("b.srt", "1\n00:00:01,000 --> 00:00:02,000\n\n")):
        (tmp_path / name).write_text(content, "utf-8")
        with pytest.raises(InvalidRequest, match=rf"{name[0]}\.\w+ has no text"):
            read_hint(tmp_path / name)


def test_a_file_of_another_kind_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(SRT, "utf-8")
    with pytest.raises(InvalidRequest, match=r"a\.txt holds captions: name it \.srt"):
        read_hint(tmp_path / "a.txt")
    monkeypatch.setattr(file, "MAX_FILE_BYTES", 9)
    with pytest.raises(InvalidRequest, match=r"a\.txt has \d+ bytes"):
        read_hint(tmp_path / "a.txt")


def test_a_folder_has_hints_by_the_names_of_recordings(tmp_path):
    (tmp_path / "talk.1.srt").write_text(SRT, "utf-8")
    (tmp_path / "talk.2.txt").write_text("a script", "utf-8")
    assert find_hint(tmp_path, Path("other/talk.1.flac")) == "Good morning,\nall.\nBye."
    assert find_hint(tmp_path, Path("talk.2.mp3")) == "a script"
    assert find_hint(tmp_path, Path("talk.3.mp3")) == ""


def test_a_broken_caption_file_is_named(tmp_path):
    (tmp_path / "a.ttml").write_text("<tt><body>", "utf-8")
    with pytest.raises(InvalidRequest, match=r"a\.ttml does not hold captions"):
        read_hint(tmp_path / "a.ttml")
    (tmp_path / "a.srt").write_text("A script, and no captions.", "utf-8")
    with pytest.raises(InvalidRequest, match=r"a\.srt holds no captions"):
        read_hint(tmp_path / "a.srt")
