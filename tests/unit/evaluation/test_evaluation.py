"""Recordings with reference texts, error rates, and the tables and plot of both methods."""

import json
import sys
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console
from rich.table import Table

from specwhisper.api.progress import ProgressBar
from specwhisper.errors import InvalidRequest, MissingExtra
from specwhisper.options import DecodingOptions, Task
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Segment
from specwhisper_evaluation.comparison import (
    ComparedRecording,
    Comparison,
    Method,
    MethodResults,
    compare,
    error_rates,
)
from specwhisper_evaluation.references import Reference, from_folder
from specwhisper_evaluation.tables import check_plot, facts, plot, recordings_table, table_of
from tests.nightly import mostly_nightly


def texts_in(folder: Path) -> dict[str, str]:
    return {reference.name: reference.text for reference in from_folder(folder)}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            {"a.txt": "One two.\n", "b/c.txt": "Drei.\n"},
            {"a.mp3": "One two.", "b/c.FLAC": "Drei."},
            id="beside their recordings",
        ),
        pytest.param(
            {"b/b.trans.txt": "c GO DO YOU HEAR\nd BUT\n"}, {"b/c.FLAC": "GO DO YOU HEAR"}, id="LibriSpeech"
        ),
        pytest.param(
            {"metadata.csv": '\ufefffile_name,text\na.mp3,"Yes, please."\n'},
            {"a.mp3": "Yes, please."},
            id="CSV",
        ),
        pytest.param(
            {"b/metadata.jsonl": json.dumps({"file_name": "c.FLAC", "text": "Yes, please."}) + "\n\n"},
            {"b/c.FLAC": "Yes, please."},
            id="JSON lines",
        ),
    ],
)
def test_texts_of_recordings_are_found(tmp_path, texts, expected):
    (tmp_path / "b").mkdir()
    for name in ("a.mp3", "b/c.FLAC", "untold.wav"):
        (tmp_path / name).touch()
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert texts_in(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "déjà".encode("latin-1"), "a.txt is not UTF-8"),
        ("metadata.jsonl", b'{"file_name": "a.mp3", "text": "Yes."}\n{', "Line 2 of .* is not JSON"),
        ("metadata.jsonl", b"[]", "Line 1 of .* is not a JSON object"),
        ("metadata.csv", b"file_name,text\na.mp3\n", "lacks"),
        ("metadata.csv", b"path,sentence\na.mp3,Yes.\n", "lacks the columns file_name and text"),
    ],
)
def test_texts_that_cannot_be_read_are_named(tmp_path, name, content, sentence):
    (tmp_path / "a.mp3").touch()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=sentence):
        texts_in(tmp_path)


def test_a_folder_without_texts_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "a.wav").touch()
    with pytest.raises(InvalidRequest, match=r"put NAME\.txt beside NAME\.wav"):
        texts_in(tmp_path)
    with pytest.raises(InvalidRequest, match="does not exist"):
        texts_in(tmp_path / "nowhere")


def test_english_is_normalised_as_whisper_does():
    reference, written = ["Mr. Brown's colour is twenty-one!"], ["mister Brown's color, is 21"]
    assert error_rates(reference, written, "en").wer == 0.0
    assert error_rates(reference, written, "de").wer > 0.5


def test_characters_count_as_words_in_languages_without_spaces():
    assert error_rates(["你好世界你好"], ["你好世界你号"], "zh").wer == 1 / 6
    assert error_rates(["你好世界你好"], ["你好世界你号"], "de").wer == 1.0


def test_rates_are_over_all_words_and_silence_is_left_out():
    rates = error_rates(["one two three four", "", "five"], ["one two three", "noise", "nine"], "de")
    assert rates.wer == 2 / 5
    assert error_rates([""], ["noise"], "en").wer == 0.0


def result(text: str, *tokens: int, elapsed_s: float = 1.0, **how) -> Transcription:
    segments = (Segment(0.0, 5.0, tokens, text),)
    return Transcription(segments, how.pop("language", "de"), duration_s=5.0, elapsed_s=elapsed_s, **how)


ALONE = SpeculationStatistics(num_committed=5, num_forwards=5)
DRAFTED = SpeculationStatistics(
    num_drafted=4,
    num_verified=4,
    num_accepted=3,
    num_committed=5,
    num_forwards=2,
    num_windows=1,
    num_judged=4,
    num_corrections=1,
    num_realigned=1,
)
PAIR = ModelInfo("large-v3", "tiny")


@pytest.fixture
def comparison() -> Comparison:
    alone = [
        result("one two", 1, 2, elapsed_s=2.0, stats=ALONE),
        result("three", 3, elapsed_s=3.0, stats=ALONE),
    ]
    pair = [result("one two", 1, 2, stats=DRAFTED, model=PAIR), result("three", 4, stats=DRAFTED, model=PAIR)]
    return Comparison(
        ["a.flac", "b.flac"],
        ["one two", "free"],
        MethodResults("target alone", alone, [2.0, 3.0]),
        MethodResults("speculative", pair, [1.0, 1.0]),
    )


def printed(table: Table) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_both_methods(comparison):
    text = printed(table_of(comparison))
    for part in (
        "large-v3 with tiny: 2 recordings, 10 s",
        "2.50 times as fast; 1 of 2 identical",
        "per recording 2.45 [",
        "33.33%",
        "75.0%",
        "2.50",
        "0.500",
        "alpha 75.0%, mean run 1.5 tokens; 2 of 2 corrections realigned",
    ):
        assert part in text


def test_every_recording_has_a_row(comparison):
    drafted = "75.0%", "75.0%", "1.5", "1", "of", "1"

    def printed_rows() -> list[list[str]]:
        lines = printed(recordings_table(comparison)).splitlines()
        return [line.split() for line in lines if ".flac" in line]

    rows = printed_rows()
    assert rows == [
        ["a.flac", "5.0", "s", "0.0%", "2.00", *drafted, "2.50", "yes"],
        ["b.flac", "5.0", "s", "100.0%", "3.00", *drafted, "2.50", "no"],
    ]
    comparison.standard.results[1] = result("free", 3)
    rows = printed_rows()
    assert rows[-1][3:5] == ["100.0%", "0.0%"]
    comparison.speculative.results[1] = result("free", 3, stats=ALONE)  # nothing was drafted
    rows = printed_rows()
    assert rows[-1] == ["b.flac", "5.0", "s", "0.0%", "1.00", "1.00", "yes"]


def test_the_facts_can_be_written_as_json(comparison):
    loaded = json.loads(json.dumps(facts(comparison)))
    assert loaded["speed_up"] == 2.5
    assert loaded["speed_up_of_batches"]["value"] == pytest.approx(6**0.5)
    assert loaded["num_identical"] == 1
    assert loaded["speculative"]["acceptance_rate"] == 0.75
    assert loaded["standard"]["texts"] == ["one two", "three"]
    assert [each["num_realigned"] for each in (loaded["speculative"], *loaded["recordings"])] == [2, 1, 1]
    assert [each["is_identical"] for each in loaded["recordings"]] == [True, False]
    assert [each["standard_elapsed_s"] for each in loaded["recordings"]] == [2.0, 3.0]


def test_a_single_batch_has_no_spread(comparison):
    standard = MethodResults("", comparison.standard.results[:1], [3.0])
    one = Comparison(["a"], ["one"], standard, MethodResults("", [], [2.0]))
    assert str(one.speed_up_of_batches) == "1.50 [n = 1]"


def test_joined_chunks_are_compared_by_their_texts():
    assert ComparedRecording("", "", result("one"), result("one")).is_identical
    assert not ComparedRecording("", "", result("one"), result("two")).is_identical


def test_translations_are_scored_as_english():
    translation = result("one", options=DecodingOptions.greedy(task=Task.TRANSLATE))
    results = MethodResults("", [translation], [1.0])
    assert Comparison([""], ["one"], results, results).language == "en"


def test_methods_alternate_and_share_the_progress(tmp_path):
    for name in "abc":
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(16_000, np.int16), 16_000)
    references = [Reference(name, tmp_path / f"{name}.wav", name) for name in "abc"]
    references.insert(1, Reference("bad", BytesIO(b"no audio"), "bad"))
    calls, shown, bad = [], [], []

    class Bar(ProgressBar):
        def advance(self, index, share):
            shown.append((index, share))

        def finish(self, index):
            shown.append((index, "done"))

    def method(name: str) -> Method:
        def transcribe(batch, on_position):
            calls.append(name + "".join(each.name for each in batch))
            on_position(0, 0.5)
            return [result(each.name) for each in batch]

        return Method(name, transcribe)

    found = compare(
        (method("alone "), method("pair ")),
        references,
        bar=Bar(4, False),
        on_undecodable=lambda each, error: bad.append(each.name),
    )
    assert calls == ["alone a", "pair a", "alone a", "pair a", "pair b", "alone b", "alone c", "pair c"]
    assert (found.names, bad) == (["a", "b", "c"], ["bad"])
    assert found.standard.texts == found.speculative.texts == ["a", "b", "c"]
    done = [[(index, 0.25), (index, 0.75), (index, "done")] for index in range(3)]
    assert shown == [*done[0], (-1, "done"), *done[1], *done[2]]


@pytest.mark.parametrize(("name", "count"), mostly_nightly([("one.SVG", 2), ("one.png", 1), ("one.png", 40)]))
def test_a_plot_is_written(comparison, tmp_path, name, count):
    methods = (
        MethodResults("", each.results[:1] * count, each.seconds[:1] * count)
        for each in (comparison.standard, comparison.speculative)
    )
    path = tmp_path / name
    plot(Comparison(["$a_b.flac"] * count, ["one"] * count, *methods), path)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        plot(comparison, tmp_path / "nowhere" / name)


def test_a_plot_that_cannot_be_drawn_is_refused_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingExtra, match=r"--plot needs matplotlib: pip install 'specwhisper\[evaluation\]'"
    ):
        check_plot()
