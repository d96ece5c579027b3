"""How like real pairs a pair errs: counts, bars, and one run on short samples."""

import json
from dataclasses import replace

import pytest

from experiments.common.audio.samples import BUNDLED
from experiments.common.bench.passes import pass_times_s
from experiments.common.models.checkpoints import Shape, build_checkpoint, perturbed
from experiments.demo_pair.pair import Pair, agreement, folder_recordings, realigned_run


@pytest.mark.parametrize(
    ("own", "right", "run"),
    [
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


def test_a_draft_equal_to_its_target_makes_no_errors_and_a_noisy_one_does():
    model, checkpoint = build_checkpoint(Shape(seed=3, max_target_positions=80))
    noisy = perturbed(model, checkpoint.vocabulary.tokens, noise=0.05)
    (spoken,) = folder_recordings(BUNDLED, limit=1)
    short = replace(spoken, one_window=True)
    pair = Pair(checkpoint, {"same": checkpoint, "noisy": noisy})
    errors = pair.measure([short])
    same, other = errors.drafts["same"], errors.drafts["noisy"]
    assert (same.unlike_target, same.agreement.acceptance) == (0.0, 1.0)
    assert same.wer == errors.target_wer
    assert other.agreement.num_tokens == same.agreement.num_tokens > 0
    assert other.agreement.acceptance < 1 and other.agreement.num_corrections > 0
    assert json.loads(json.dumps(errors.facts()))["drafts"]["same"]["acceptance"] == 1.0
    models = {"target": pair.target, **pair.drafts}
    times = pass_times_s(models, short.sample.recording, 10, [(1, 1), (2, 3)], repeats=2)
    assert set(times) == {"target", "same", "noisy"}
    assert all(taken_s > 0 for found in times.values() for taken_s in found.values())
