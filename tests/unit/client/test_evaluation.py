"""Recordings with reference texts, error rates, and the table of both arms."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from specwhisper.errors import InvalidRequest
from specwhisper.evaluation.command import facts, table_of
from specwhisper.evaluation.references import from_folder
from specwhisper.evaluation.scoring import error_rates
from specwhisper.evaluation.side_by_side import Arm, Comparison
from specwhisper.speculation.statistics import SpeculationStatistics


def texts_in(folder: Path) -> dict[str, str]:
    return {reference.name: reference.text for reference in from_folder(folder)}


def test_texts_beside_their_recordings_are_read(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("a.wav", "b/c.FLAC", "untold.wav"):
        (tmp_path / name).touch()
    (tmp_path / "a.txt").write_text("One two.\n")
    (tmp_path / "b/c.txt").write_text("Drei.\n")
    assert texts_in(tmp_path) == {"a.wav": "One two.", "b/c.FLAC": "Drei."}


def test_folders_of_librispeech_are_read(tmp_path):
    folder = tmp_path / "84" / "121123"
    folder.mkdir(parents=True)
    (folder / "84-121123.trans.txt").write_text("84-121123-0000 GO DO YOU HEAR\n84-121123-0001 BUT\n")
    for number in range(3):
        (folder / f"84-121123-{number:04}.flac").touch()
    assert texts_in(tmp_path) == {
        "84/121123/84-121123-0000.flac": "GO DO YOU HEAR",
        "84/121123/84-121123-0001.flac": "BUT",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.csv", 'file_name,text\na.mp3,"Yes, please."\n'),
        ("metadata.jsonl", json.dumps({"file_name": "a.mp3", "text": "Yes, please."}) + "\n"),
    ],
)
def test_metadata_files_are_read(tmp_path, name, text):
    (tmp_path / "a.mp3").touch()
    (tmp_path / name).write_text(text)
    assert texts_in(tmp_path) == {"a.mp3": "Yes, please."}


def test_a_folder_without_texts_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "a.wav").touch()
    with pytest.raises(InvalidRequest, match=r"put NAME\.txt beside NAME\.wav"):
        texts_in(tmp_path)
    with pytest.raises(InvalidRequest, match="does not exist"):
        texts_in(tmp_path / "nowhere")
    (tmp_path / "metadata.csv").write_text("path,sentence\na.wav,Yes.\n")
    with pytest.raises(InvalidRequest, match="lacks the columns file_name and text"):
        texts_in(tmp_path)


def test_english_is_normalised_as_whisper_does():
    reference, written = ["Mr. Brown's colour is twenty-one!"], ["mister Brown's color, is 21"]
    assert error_rates(reference, written, "en").wer == 0.0
    assert error_rates(reference, written, "de").wer > 0.5
    assert error_rates(["Twenty-one colours."], ["21 colors"], "en").wer == 0.0
    assert error_rates(["Twenty-one colours."], ["21 colors"], "de").wer == 1.0


def test_characters_count_as_words_in_languages_without_spaces():
    assert error_rates(["你好世界你好"], ["你好世界你号"], "zh").wer == 1 / 6
    assert error_rates(["你好世界你好"], ["你好世界你号"], "de").wer == 1.0


def test_rates_are_over_all_words_and_silence_is_left_out():
    rates = error_rates(["one two three four", "", "five"], ["one two three", "noise", "nine"], "de")
    assert rates.wer == 2 / 5
    assert error_rates([""], ["noise"], "en").wer == 0.0


@pytest.fixture
def comparison() -> Comparison:
    target_only = Arm("target only", ["one two", "three"], [(1, 2), (3,)], [2.0, 2.0])
    target_only.statistics.add(SpeculationStatistics(num_committed=5, num_forwards=5))
    pair = Arm("speculative", ["one two", "three"], [(1, 2), (4,)], [1.0, 1.0])
    pair.statistics.add(
        SpeculationStatistics(num_verified=4, num_accepted=3, num_committed=5, num_forwards=2)
    )
    return Comparison(["one two", "free"], 10.0, target_only, pair, "de")


def test_the_table_has_both_arms(comparison):
    console = Console(width=120, record=True, file=StringIO())
    console.print(table_of(comparison, "large-v3", "tiny"))
    text = console.export_text()
    for part in (
        "large-v3 with tiny: 2 recordings, 10 s",
        "2.00 times as fast; 1 of 2 identical",
        "33.33%",
        "75.0%",
        "2.50",
        "0.400",
    ):
        assert part in text


def test_the_facts_can_be_written_as_json(comparison):
    loaded = json.loads(json.dumps(facts(comparison)))
    assert loaded["speed_up"] == 2.0
    assert loaded["num_identical"] == 1
    assert loaded["speculative"]["acceptance_rate"] == 0.75
    assert loaded["standard"]["texts"] == ["one two", "three"]
