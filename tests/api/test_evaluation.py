"""Recordings with texts, transcribed by both methods: which are compared, and which are left out."""

import shutil
import sys
from io import BytesIO
from types import ModuleType

import pytest
from typer.testing import CliRunner

from specwhisper import SpeculativeWhisper
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper_client.cli.main import app
from specwhisper_evaluation.comparison import compare
from specwhisper_evaluation.methods import in_one_process
from specwhisper_evaluation.references import Reference, from_dataset, from_folder
from specwhisper_evaluation.tables import facts
from tests.e2e.processes import run
from tests.nightly import examples

SAMPLES = DEMO_FOLDER / "samples"


@pytest.fixture(scope="module")
def pair():
    return SpeculativeWhisper("demo-draft-distil", "demo-target", device="cpu", batch_size=2)


@pytest.fixture(scope="module")
def short() -> list[Reference]:
    return list(from_folder(SAMPLES))[: examples(by_day=1, at_night=2)]


def test_both_methods_write_the_same_and_are_scored_without_what_cannot_be_decoded(pair, short):
    broken = Reference("broken.wav", BytesIO(b"no audio"), "one two")
    with pytest.raises(InvalidAudio):
        compare(in_one_process(pair, language="en"), [broken])
    bad = []
    comparison = compare(
        in_one_process(pair, language="English"),
        [broken, *short],
        batch_size=2,
        on_undecodable=lambda reference, error: bad.append((reference.name, str(error))),
    )
    ((name, reason),) = bad
    assert name == "broken.wav" and "neither libsndfile nor FFmpeg" in reason
    assert comparison.num_identical == len(short) == len(comparison.references)
    assert comparison.language == "en"
    assert comparison.duration_s > 3
    rates = [comparison.rates(arm) for arm in (comparison.standard, comparison.speculative)]
    assert rates[0] == rates[1]
    assert rates[0].wer < 0.3
    assert comparison.standard.statistics.num_verified == 0
    row, *_ = facts(comparison)["recordings"]
    assert 0.5 < row["acceptance_rate"] <= row["alpha"] <= 1.0
    assert row["mean_run"] > 1.0 and row["num_realigned"] <= row["num_corrections"]
    assert sum(row["acceptance_histogram"]) > 0


@pytest.mark.nightly
def test_the_command_continues_without_them_and_exits_with_1(short, tmp_path):
    shutil.copy(short[0].audio, tmp_path / "good.flac")
    (tmp_path / "good.txt").write_text(short[0].text)
    (tmp_path / "bad.wav").write_bytes(b"RIFF, or so")
    (tmp_path / "bad.txt").write_text("one two")
    models = ["--final-model", "demo-target", "--draft-model", "demo-draft-tiny", "--device", "cpu"]
    result = CliRunner().invoke(app, ["evaluate", "--folder", str(tmp_path), "--language", "en", *models])
    assert result.exit_code == 1
    assert "1 recording," in result.stdout
    assert "left out: bad.wav: Audio file" in result.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    "how",
    [
        [],
        ["--chunk-length-s", "5"],
        ["--dtype", "bfloat16"],
        ["--draft-dtype", "bfloat16"],
        ["--cut-windows"],
        ["--padding", "zero"],
    ],
    ids=str,
)
def test_the_models_libraries_write_nothing_to_the_terminal(short, tmp_path, how):
    shutil.copy(short[0].audio, tmp_path / "good.flac")
    (tmp_path / "good.txt").write_text(short[0].text)
    models = ("--final-model", "demo-target", "--draft-model", "demo-draft-tiny", "--device", "cpu")
    command = ("evaluate", "--folder", str(tmp_path), "--language", "en", *models, *how)
    status, out, err = run("specwhisper", *command)
    assert (status, err) == (0, "")
    assert "1 recording," in out


class Rows:
    """A dataset of the hub, as far as it is used."""

    def __init__(self, rows: list[dict], fails_at: int | None = None) -> None:
        self._rows, self._fails_at = rows, fails_at

    def cast_column(self, name, audio):
        assert (name, audio) == ("audio", "not decoded")
        return self

    def __iter__(self):
        for number, row in enumerate(self._rows):
            if number == self._fails_at:
                raise ConnectionError("the hub is gone")
            yield row


@pytest.fixture
def hub(monkeypatch):
    def holds(rows: Rows) -> None:
        datasets = ModuleType("datasets")
        datasets.load_dataset = lambda name, config, split, streaming: rows
        datasets.Audio = lambda decode: "decoded" if decode else "not decoded"
        monkeypatch.setitem(sys.modules, "datasets", datasets)

    return holds


def test_a_dataset_gives_files_or_their_bytes(hub):
    path = next(SAMPLES.glob("01*"))
    hub(
        Rows(
            [
                {"id": "a", "audio": {"bytes": path.read_bytes(), "path": "a.flac"}, "text": "One."},
                {"audio": {"bytes": None, "path": str(path)}, "sentence": "Two."},
                {"audio": {"bytes": b"", "path": ""}, "sentence": "Beyond the limit."},
            ]
        )
    )
    first, second = from_dataset("some/thing", "nl", "test", 2)
    assert (first.name, first.text, first.audio.read()) == ("a", "One.", path.read_bytes())
    assert (second.name, second.text, second.audio) == ("1", "Two.", path)


def test_a_lost_hub_is_one_sentence(hub):
    row = {"audio": {"bytes": b"", "path": ""}, "text": "One."}
    hub(Rows([row, row], fails_at=1))
    rows = from_dataset("some/thing", None, "test", None)
    next(rows)
    with pytest.raises(InvalidRequest, match=r"'some/thing' cannot be read \(the hub is gone\)"):
        next(rows)


def test_a_dataset_without_text_is_refused(hub):
    hub(Rows([{"audio": {"bytes": b"", "path": ""}, "label": 3}]))
    with pytest.raises(InvalidRequest, match="The dataset has no text"):
        list(from_dataset("some/thing", None, "test", None))
