"""How like real pairs a pair errs: counts, bars, published figures, and one run on short samples."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.common.audio.samples import BUNDLED
from experiments.common.models.checkpoints import Shape, build_checkpoint, perturbed
from experiments.pair.bars import WindowFigures, find_bars, recorded_figures
from experiments.pair.measure import Pair, bytes_on_disk
from experiments.pair.published import Rates, load_published
from experiments.pair.realignment import agreement, realigned_run
from experiments.pair.recordings import folder_recordings
from experiments.pair.step_cost import step_milliseconds

GOOD = WindowFigures({"noisy": 0.07, "clean": 0.02}, {"a-tiny": 0.15}, {"a-tiny": 0.9})
TITLES = {"a-tiny": "draft-tiny"}


@pytest.mark.parametrize(
    ("own", "right", "run"),
    [
        ([9, 1, 2, 3, 8], [1, 2, 3, 4], 3),  # one token replaced
        ([1, 2, 3], [1, 2, 3, 4], 3),  # the draft omitted the corrected token
        ([9, 0, 1, 2], [1, 2, 3], 2),  # the draft wrote an additional token
        ([9, 8, 7, 2, 3], [1, 2, 3], 2),  # realigned after three tokens
        ([9, 8, 7, 6, 1, 2, 3], [1, 2, 3], None),  # too late
        ([9, 1, 8], [1, 2, 3], None),  # one equal token does not count
        ([9, 1], [1], 1),  # unless it is the last
        ([9, 8], [], None),
    ],
)
def test_a_draft_realigns_within_three_tokens(own, right, run):
    assert realigned_run(own, right) == run


def test_agreement_counts_accepted_tokens_and_runs():
    right = [1, 2, 3, 4, 5, 6]
    found = agreement(
        [
            (right, {1: [9, 3, 4, 5, 6], 5: [9]}),  # one that realigns, and the last token, which cannot
            (right, {0: [9, 9, 9, 9, 9, 9]}),  # one that does not
            (right, {}),
        ]
    )
    assert found.acceptance == pytest.approx(15 / 18)
    assert (found.num_corrections, found.runs) == (2, (4,))
    assert (found.realigns, found.mean_run) == (0.5, 4.0)


def test_without_any_error_nothing_is_divided_by_zero():
    found = agreement([([1, 2], {})])
    assert (found.acceptance, found.realigns, found.mean_run) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, None),
        ({"target_wer": {"noisy": 0.09, "clean": 0.02}}, "WER of the target on full noisy windows"),
        ({"target_wer": {"noisy": 0.07, "clean": 0.04}}, "WER of the target on full clean windows"),
        ({"draft_wer": {"a-tiny": 0.21}}, "WER of draft-tiny alone on full noisy windows"),
        ({"acceptance": {"a-tiny": 0.84}}, "tokens of draft-tiny that the target refuses"),
        ({"acceptance": {"a-tiny": 0.93}}, "tokens of draft-tiny that the target accepts"),
        ({"step": 0.21}, "a step of draft-tiny over the target's"),
        ({"num_bytes": 31_000_000}, "all models on disk, MB"),
    ],
)
def test_each_bar_fails_where_its_figure_is_worse(changed, failing):
    figures = {"step": 0.19, "num_bytes": 29_000_000} | changed
    step, num_bytes = figures.pop("step"), figures.pop("num_bytes")
    windows = WindowFigures(
        *(figures.get(name, getattr(GOOD, name)) for name in ("target_wer", "draft_wer", "acceptance"))
    )
    bars, absent = find_bars(windows, {"a-tiny": step}, num_bytes, TITLES)
    assert not absent
    assert [bar.name for bar in bars if not bar.holds] == ([failing] if failing else [])


def test_bars_without_windows_are_named_and_not_judged():
    bars, absent = find_bars(WindowFigures({}, {}, {}), {"a-tiny": 0.1}, 1, TITLES)
    assert [bar.name for bar in bars] == ["a step of draft-tiny over the target's", "all models on disk, MB"]
    assert len(absent) == 5


def test_windows_are_read_from_an_evaluation_that_lacks_some(tmp_path):
    content = {
        "target": {"wer": {"packed": {"wer": 0.1}}},
        "tiny": {"wer": {"packed": {"wer": 0.3}, "packed-clean": {"wer": 0.2}}, "acceptance": {}},
    }
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(content))
    assert recorded_figures(path, {"a": "tiny"}) == WindowFigures({"noisy": 0.1}, {"a": 0.3}, {})


def test_every_published_figure_has_a_source_with_an_address():
    published = load_published()
    assert set(published.cited()) == set(published.sources)
    assert all(source.url.startswith("http") for source in published.sources.values())
    drafts = {pair.draft for pair in published.pairs}
    assert {"tiny", "base", "distil-large-v2", "distil-large-v3", "distil-medium.en"} <= drafts


def test_published_disagreement_lies_between_difference_and_sum():
    assert Rates("any", 3.0, 10.0, "here").disagreement == (7.0, 13.0)
    assert Rates("any", 10.0, 3.0, "here").disagreement == (7.0, 13.0)


@pytest.fixture(scope="module")
def target():
    return build_checkpoint(Shape(seed=3, max_target_positions=60))


def test_a_draft_equal_to_its_target_makes_no_errors_and_a_noisy_one_does(target):
    model, checkpoint = target
    noisy = perturbed(model, checkpoint.vocabulary.tokens, noise=0.05)
    (spoken,) = folder_recordings(BUNDLED, limit=1)
    short = replace(spoken, one_window=True)
    errors = Pair(checkpoint, {"same": checkpoint, "noisy": noisy}).measure([short, spoken], "en")
    same, other = errors.drafts["same"], errors.drafts["noisy"]
    assert (same.unlike_target, same.agreement.acceptance) == (0.0, 1.0)
    assert same.wer == errors.target_wer
    assert other.agreement.num_tokens == same.agreement.num_tokens > 0
    assert other.agreement.acceptance < 1 and other.agreement.num_corrections > 0
    assert json.loads(json.dumps(errors.facts()))["drafts"]["same"]["acceptance"] == 1.0


def test_all_models_are_timed():
    checkpoint = build_checkpoint(Shape())[1]
    pair = Pair(checkpoint, {"same": checkpoint})
    found = step_milliseconds({"target": pair.target, **pair.drafts}, rounds=2)
    assert set(found) == {"target", "same"} and min(found.values()) > 0


def test_a_size_is_that_of_the_folder(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a").write_bytes(bytes(5))
    (tmp_path / "b").write_bytes(bytes(2))
    assert bytes_on_disk(str(tmp_path)) == 7
