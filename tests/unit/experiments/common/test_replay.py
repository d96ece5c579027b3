"""A replayed draft writes what the recorded one wrote; the ladder compares whole texts."""

from experiments.common.replay.trace import Decoding


def test_a_draft_follows_its_divergence_and_then_repeats_its_last_token():
    decoding = Decoding("", 0, "", (), 0.0, (1, 2, 3, 9), (0.0,) * 4, (0.0,) * 4, divergences={2: (5, 6)})

    def after(written: tuple[int, ...]) -> int:
        return decoding.draft_after(written)[0]

    assert [after(()), after((1,)), after((1, 2)), after((1, 2, 3))] == [1, 2, 5, 9]
    assert [after((1, 2, 5)), after((1, 2, 5, 6)), after((1, 2, 5, 6, 6))] == [6, 6, 6]
    assert after((7, 7, 7)) == 9  # not in the trace
    assert after((1, 2, 3, 9)) == 9


def test_a_draft_has_its_recorded_log_probs():
    sure = Decoding(
        *("", 0, "", (), 0.0, (1, 2, 3, 9), (0.0,) * 4, (0.0,) * 4),
        divergences={2: (5, 6)},
        draft_log_probs=(-0.1, -0.2, -0.9, -0.3),
        continuation_log_probs={2: (-0.9, -1.5)},
    )
    log_probs = [
        sure.draft_after(written)[1] for written in ((), (1,), (1, 2), (1, 2, 5), (1, 2, 5, 6), (1, 2, 3))
    ]
    assert log_probs == [-0.1, -0.2, -0.9, -1.5, -1.5, -0.3]
