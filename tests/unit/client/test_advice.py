"""Advice for a link and a pair of models, from measurements, and the pair that is measured."""

from dataclasses import fields
from math import exp

import numpy as np
import pytest
import trustme
import typer
from scipy import stats

from specwhisper.errors import SpecWhisperError
from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.tls import ClientTls
from specwhisper.settings.command_line import app_of
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription
from specwhisper_client.cli.advice import COMPARED, Ratio, advise, compare
from specwhisper_client.cli.tune_command import Pair
from specwhisper_draft_server.config import DraftConfig
from tests.certificates import save

MS = 1_000_000
TARGET_ONLY, SYNC, PIPELINED, FULL = COMPARED


def measured(acceptance=0.85, round_trip_ms=5.0, draft_ms=4.0, pass_ms=20.0):
    """Return a session's statistics with these mean times; a token takes 0.1 ms of a forward pass."""
    return {
        "gamma": 2,
        "num_draft_steps": 300,
        "draft_ns": round(300 * draft_ms * MS),
        "num_forwards": 100,
        "forward_ns": round(100 * (pass_ms + 4 * 0.1) * MS),  # 300 candidates, and one token in each
        "num_verified": 300,
        "token_ns": round(0.1 * MS),
        "num_answers": 100,
        "network_ns": round(100 * round_trip_ms * MS),
        "num_judged": 1000,
        "num_corrections": round(1000 * (1 - acceptance)),
    }


KNOWN = dict.fromkeys(COMPARED[1:], measured())


def rounds(*times_ms, known=KNOWN):
    """Return rounds from the times per token of the four modes in each."""
    return [
        {
            mode: Transcription(
                elapsed_s=0.1 * ms, stats=SpeculationStatistics(num_committed=100, **known.get(mode, {}))
            )
            for mode, ms in zip(COMPARED, each, strict=True)
        }
        for each in times_ms
    ]


class TestDecision:
    @pytest.mark.parametrize(
        ("times_ms", "best", "reason"),
        [
            (
                ((20, 30, 28, 22), (20, 31, 28, 22), (20, 30, 29, 22)),
                TARGET_ONLY,
                "no mode with a draft gains more than the spread",
            ),
            (
                ((20, 30, 9, 10), (20, 31, 11, 10), (20, 30, 9, 10)),
                FULL,
                "no other mode was faster by more than the spread",
            ),
            (
                ((20, 30, 16, 21), (20, 30, 17, 15), (20, 30, 16, 20)),
                PIPELINED,
                "the fastest, where full gained no more than the spread",
            ),
        ],
        ids=["full was slower", "another is faster within the spread", "full gains nothing"],
    )
    def test_full_is_advised_unless_it_gains_nothing(self, times_ms, best, reason):
        advice = advise(rounds(*times_ms))
        assert (advice.best.mode, advice.reason) == (best, reason)

    def test_another_mode_is_advised_if_it_is_surely_faster(self):
        advice = advise(rounds(*([20 * slow, 12 * slow, 9 * slow, 10 * slow] for slow in (1, 1.3, 0.8))))
        assert advice.best.mode is PIPELINED
        assert advice.reason == "faster than full by more than the spread"

    @pytest.mark.parametrize(("last_ms", "is_sure"), [(15.5, True), (24, False)])
    def test_a_gain_within_the_spread_is_not_advised(self, last_ms, is_sure):
        advice = advise(rounds((20, 30, 30, 15), (20, 30, 30, 16), (20, 30, 30, last_ms)))
        assert advice.best.mode is (FULL if is_sure else TARGET_ONLY)
        assert ("may gain, so measure for longer" in advice.reason) is not is_sure


class TestComparison:
    def test_the_time_of_a_mode_is_the_geometric_mean_of_its_rounds(self):
        compared = compare(rounds((10, 20, 20, 5), (40, 20, 20, 10)))
        assert compared[TARGET_ONLY].time_per_token_s == pytest.approx(0.020)
        assert compared[FULL].over_target_only.value == pytest.approx((0.5 * 0.25) ** 0.5)
        assert compared[FULL].time_per_token_s == pytest.approx(0.020 * (0.5 * 0.25) ** 0.5)
        assert compared[TARGET_ONLY].over_target_only == Ratio(1, 1, 1, 2)

    @pytest.mark.parametrize("num_rounds", [2, 11, 12])
    def test_intervals_are_those_of_students_t_distribution(self, num_rounds):
        logs = np.random.default_rng(num_rounds).normal(-0.3, 0.2, num_rounds)
        ratio = Ratio.paired(np.exp(logs), np.ones(num_rounds))
        low, high = stats.t.interval(0.95, num_rounds - 1, logs.mean(), stats.sem(logs))
        assert ratio.value == pytest.approx(exp(logs.mean()))
        assert (np.log(ratio.low), np.log(ratio.high)) == pytest.approx((low, high), abs=0.002)

    def test_gamma_is_the_median_and_acceptance_that_of_all_tokens(self):
        session = rounds((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1))
        for each, gamma, counts in zip(session, (2, 9, 3), ((10, 9), (90, 1), (0, 0)), strict=True):
            each[SYNC].stats.gamma = gamma
            each[SYNC].stats.num_verified, each[SYNC].stats.num_accepted = counts
        compared = compare(session)
        assert (compared[SYNC].gamma, compared[SYNC].acceptance_rate) == (3, 0.1)
        assert (compared[FULL].gamma, compared[FULL].acceptance_rate) == (2, 0)
        assert compared[TARGET_ONLY].gamma is None


class TestParts:
    def test_they_are_means_of_sync(self):
        noise = measured(0.1, 500, 50, 500)
        known = {SYNC: measured(0.5, 4, 3, 19), PIPELINED: noise, FULL: noise}
        session = rounds(*[(20, 15, 15, 10)] * 2, known=known)
        session[1][SYNC].stats.add(SpeculationStatistics(**measured(0.8, 8, 6, 25)))
        parts = advise(session).parts
        found_ms = [1e3 * getattr(parts, part.name) for part in fields(parts)]
        assert found_ms == pytest.approx([4, 21, 0.1, 16 / 3])

    def test_without_drafted_tokens_there_is_no_advice(self):
        with pytest.raises(SpecWhisperError, match="more speech"):
            advise(rounds(*[(20, 15, 15, 10)] * 2, known=KNOWN | {SYNC: {}}))


def test_its_draft_server_reads_a_token_from_the_environment_alone(tmp_path, monkeypatch):
    token, own = "0123456789abcdef", save(trustme.CA(), tmp_path, "own")
    tls = ClientTls(tmp_path / "roots.pem", own.certificate, own.key, "target")
    pair = Pair("gpu:50052", "tiny", credentials=Credentials(tls, token))
    assert not any(token in word for word in pair.command)
    for name, value in pair.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("specwhisper.settings.command_line.configure_logging", lambda *_: None)
    read = typer.main.get_command(app_of(DraftConfig, lambda config: config))
    config = read.main(pair.command[3:], standalone_mode=False)
    assert config.target_credentials == pair.credentials
    plain = Pair("127.0.0.1:50052", "tiny")
    assert (plain.environment, "--target-use-ssl" in plain.command) == ({}, False)
