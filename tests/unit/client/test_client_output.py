"""Formats and files of the terminal client's output."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Mode, Segment, Word
from specwhisper_client.cli.display import transcript_table
from specwhisper_client.cli.recordings import OutputFormat, RecordingFile, prepare_outputs, render, write

STATISTICS = SpeculationStatistics(num_verified=8, num_accepted=6, num_committed=10, num_forwards=4)


def transcript(*texts: str) -> Transcription:
    segments = tuple(Segment(i, i + 0.5, (i, 50_000 + i), text, 0.5) for i, text in enumerate(texts))
    model = ModelInfo("large", "tiny", "abc", Mode.FULL, 5)
    return Transcription(
        segments,
        language="de",
        language_name="german",
        duration_s=10.0,
        stats=STATISTICS,
        model=model,
        elapsed_s=2.5,
    )


def test_json_names_the_file_and_escapes_no_letters():
    text = render(transcript(" Grüße.", " Ja."), Path("in/a.wav"), OutputFormat.JSON)
    assert "Grüße" in text
    assert json.loads(text)["audio"] == "in/a.wav"


def test_silence_is_empty_in_every_format():
    formats = (OutputFormat.TXT, OutputFormat.SRT, OutputFormat.VTT, OutputFormat.TSV)
    written = [render(transcript(), Path("a.wav"), each) for each in formats]
    assert written == ["", "", "WEBVTT\n", "start\tend\ttext\n"]


def test_unsure_words_are_those_below_a_probability():
    words = (Word(0, 0.2, " Sure", 0.9), Word(0.2, 0.5, " unsure", 0.4), Word(0.5, 0.6, " ", 0.1))
    transcription = Transcription((Segment(0, 1, (1,), " Sure unsure ", words=words),))
    assert transcription.unsure_words() == words[1:2]
    assert transcription.unsure_words(below=0.95) == words[:2]
    table = render(transcription, Path("a.wav"), OutputFormat.UNSURE, unsure_below=0.3)
    assert table == "start\tend\tprobability\tword\n"
    assert OutputFormat.UNSURE.suffix == "unsure.tsv"


def recordings(*places: str) -> list[RecordingFile]:
    return [RecordingFile(Path("in", f"{place}.wav"), Path("in"), Path(place)) for place in places]


def test_outputs_are_in_the_folders_of_their_recordings(tmp_path):
    folder = tmp_path / "a" / "b"
    paths = prepare_outputs(recordings("x/one", "two.tar"), folder, [OutputFormat.JSON])
    assert paths == [{OutputFormat.JSON: folder / "x/one.json"}, {OutputFormat.JSON: folder / "two.tar.json"}]
    assert (folder / "x").is_dir()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=r"file/folder cannot be created: Not a directory\.$"):
        prepare_outputs(recordings("one"), tmp_path / "file" / "folder", [OutputFormat.TXT])


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left_of_it(tmp_path):
    (tmp_path / "one.txt").mkdir()
    with pytest.raises(InvalidRequest, match=r"one\.txt cannot be written: Is a directory\.$"):
        write(tmp_path / "one.txt", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["one.txt"]


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("long " * 10_000)
    with path.open() as opened:
        write(path, "Grüße")
        assert opened.read() == "long " * 10_000, "a reader has the old text or the new one"
    assert path.read_text("utf-8") == "Grüße"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "no candidates: it knows no 'de', or came too late"),
        ({"num_hinted": 3}, None),
        ({"gamma": 5, "num_drafted": 8, "draft_note": "the draft has failed"}, "the draft has failed"),
    ],
    ids=["nothing", "a recogniser", "a failure"],
)
def test_the_table_shows_how_the_draft_does(counts, expected):
    assert shown(**counts).get("draft") == expected


def test_the_table_counts_blocks_and_shows_mean_times():
    assert shown(num_blocks=3)["blocks"] == "3 sent"
    sent = {"gamma": 1, "num_drafted": 8, "num_blocks": 3, "min_round_trip_ns": 5_000_000}
    assert shown(**sent)["blocks"] == "3 sent, the fastest answer took 5.00 ms, now of 1 token"
    assert "times" not in shown(**sent)
    timed = {"num_draft_steps": 8, "draft_ns": 40_000_000, "forward_ns": 80_000_000}
    timed |= {"num_answers": 2, "network_ns": 6_000_000}
    assert shown(**timed)["times"] == "draft step 5.0 ms, forward pass 20.0 ms", "in one process"
    assert shown(**sent, **timed)["times"].endswith("pass 20.0 ms, on the way 3.0 ms")


def shown(**counts) -> dict[str, str]:
    """Return the rows of a transcript's table."""
    table = transcript_table(replace(transcript(" Ja."), stats=replace(STATISTICS, **counts)))
    names, values = ([str(cell) for cell in column.cells] for column in table.columns)
    return dict(zip(names, values, strict=True))
