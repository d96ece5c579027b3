"""specwhisper top computes its figures from readings of metrics."""

import ssl
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from math import inf

import pytest
from rich.console import Console

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper_top.figures import (
    DRAFT,
    DRAINING,
    LOST,
    TARGET,
    Figures,
    Reading,
    check_addresses,
    figures_of,
    parse,
    quantile,
    read_all,
    total_of,
)
from specwhisper_top.tables import WIDE, cluster_view

EXPORTED = """
# TYPE process_start_time_seconds gauge
process_start_time_seconds 100.0
# TYPE specwhisper_target_build info
specwhisper_target_build_info{model="large-v3\\u001b[31m",dtype="float16"} 1.0
# TYPE specwhisper_target_slots gauge
specwhisper_target_slots 8.0
specwhisper_target_slots_in_use {in_use}
specwhisper_target_active_sessions {in_use}
specwhisper_target_draining {draining}
# TYPE specwhisper_target_committed_tokens_total counter
specwhisper_target_committed_tokens_total {committed}
specwhisper_target_session_forward_passes_total {passes}
specwhisper_target_verified_tokens_total 200.0
specwhisper_target_accepted_tokens_total 150.0
specwhisper_target_sessions_total{mode="full",outcome="failed"} 1.0
specwhisper_target_sessions_total{mode="sync",outcome="failed"} 2.0
specwhisper_target_sessions_total{mode="sync",outcome="complete"} 5.0
# TYPE specwhisper_target_queue_seconds histogram
specwhisper_target_queue_seconds_bucket{le="0.01"} 90.0
specwhisper_target_queue_seconds_bucket{le="0.02"} 100.0
specwhisper_target_queue_seconds_bucket{le="+Inf"} 100.0
"""


def reading(address: str = "gpu:9464", at_s: float = 200.0, text: str = EXPORTED, **values: float) -> Reading:
    values = {"in_use": 3, "draining": 0, "committed": 1000, "passes": 400} | values
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(float(value)))
    return Reading(address, at_s, parse(text))


def test_a_first_reading_covers_the_time_since_the_start():
    (row,) = figures_of(reading(), None)
    assert (row.kind, row.address, row.sessions, row.capacity) == (TARGET, "gpu:9464", 3, 8)
    assert row.tokens_per_s == pytest.approx(10.0)
    assert row.tokens_per_forward == pytest.approx(2.5)
    assert row.acceptance == pytest.approx(0.75)
    assert row.queue_s == pytest.approx(0.015)
    assert row.failed == 3
    assert row.round_trip_s is None


def test_a_later_reading_covers_the_time_in_between():
    (row,) = figures_of(reading(at_s=202.0, committed=1100, passes=420), reading())
    assert row.tokens_per_s == pytest.approx(50.0)
    assert row.tokens_per_forward == pytest.approx(5.0)
    assert row.acceptance is None, "no candidate was verified in between"
    assert row.queue_s is None
    assert row.failed == 0


def test_servers_of_a_kind_are_summed():
    now = [
        reading("a:1", 202.0, committed=1100, passes=420, in_use=8),
        reading("b:1", 202.0, committed=1020, passes=420),
    ]
    total = total_now(now)
    assert (total.sessions, total.capacity, total.state) == (11, 16, "2 servers")
    assert total.tokens_per_s == pytest.approx(60.0)
    assert total.tokens_per_forward == pytest.approx(3.0), "not the mean of 5 and 1"


def total_now(now: list[Reading]) -> Figures:
    """Return the total of servers that all had the same figures before."""
    readings = [(each, reading(each.address)) for each in now]
    rows = [row for pair in readings for row in figures_of(*pair) if row.kind == TARGET]
    return total_of(TARGET, rows, readings)


def test_a_lost_server_does_not_reduce_the_total():
    lost = Reading("b:1", 202.0, error="no server answers")
    total = total_now([reading("a:1", 202.0, committed=1100, passes=420), lost])
    assert (total.state, total.sessions, total.capacity) == ("1 servers", 3, 8)
    assert total.tokens_per_s == pytest.approx(50.0)
    assert total.tokens_per_forward == pytest.approx(5.0)
    assert total.failed == 0


def test_a_restarted_server_adds_its_work_since_the_restart():
    restarted = EXPORTED.replace("_start_time_seconds 100.0", "_start_time_seconds 201.0")
    now = [
        reading("a:1", 202.0, committed=1100, passes=420),
        reading("b:1", 202.0, restarted, committed=1020, passes=20),  # more than before, in one second
    ]
    total = total_now(now)
    assert total.tokens_per_s == pytest.approx(50.0 + 1020.0)
    assert total.tokens_per_forward == pytest.approx(1120 / 40)
    assert total.failed == 3


def test_a_target_in_a_draft_servers_process_is_listed():
    text = EXPORTED + "specwhisper_draft_active_sessions 2.0\nspecwhisper_draft_max_sessions 4.0\n"
    target, draft = figures_of(reading(text=text), None)
    assert (target.kind, draft.kind) == (TARGET, DRAFT)
    assert (draft.sessions, draft.capacity) == (2, 4)


def test_servers_that_stop_or_are_lost_are_marked():
    (row,) = figures_of(reading(draining=1), None)
    assert row.state == DRAINING
    (lost,) = figures_of(Reading("a:1", 1.0, error="no server answers"), reading())
    assert (lost.state, lost.reason) == (LOST, "no server answers")
    (other,) = figures_of(Reading("a:1", 1.0, parse("up 1.0\n")), None)
    assert (other.state, other.reason) == (LOST, "exports no metrics of specwhisper")


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([], 0.5, None),
        ([(1.0, 0), (inf, 0)], 0.5, None),
        ([(1.0, 10), (inf, 10)], 0.5, 0.5),
        ([(1.0, 10), (3.0, 30), (inf, 30)], 0.5, 1.5),
        ([(1.0, 0), (3.0, 10), (inf, 10)], 0.5, 2.0),
        ([(1.0, 0), (2.0, 0), (inf, 10)], 0.95, 2.0),
    ],
)
def test_quantiles_are_estimated_as_promql_does(counts, share, expected):
    assert quantile(counts, share) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("width", [80, 110, 160])
def test_tables_fit_the_width_and_show_the_main_columns(width):
    rows = [
        *figures_of(reading("gpu1:9464", in_use=8), None),
        *figures_of(reading("gpu2:9464", draining=1), None),
        *figures_of(Reading("gpu3:9464", 1.0, error="no server answers"), None),
    ]
    readings = [(reading("gpu1:9464", in_use=8), None), (reading("gpu2:9464"), None)]
    totals = {TARGET: total_of(TARGET, rows[:2], readings)}
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    console.print(cluster_view(rows, totals, "now", width=width))
    text = console.export_text()
    console.file.close()
    assert all(len(line) <= width for line in text.splitlines())
    for shown in (
        "target servers",
        " 8/8",
        " 3/8",
        "11/16",
        "2 servers",
        "gpu3:9464  no server answers",
        "queue ms",
        "fail",
    ):
        assert shown in text
    assert ("err/s" in text) is ("model" in text) is (width >= WIDE)
    assert "\x1b" not in text, "a server cannot control the terminal"


def test_a_token_is_not_sent_unencrypted():
    check_addresses(["127.0.0.1:9464"], Credentials(token="0123456789abcdef"))
    check_addresses(["gpu:9464"], OPEN)
    with pytest.raises(UnsafeBind, match="unencrypted"):
        check_addresses(["gpu:9464"], Credentials(token="0123456789abcdef"))
    with pytest.raises(InvalidRequest):
        check_addresses(["gpu"], OPEN)


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "unable to get local issuer certificate"
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (untrusted(), "certificate is not trusted: unable to get local issuer"),  # also a ValueError
        (ssl.SSLError(1, "wrong version number"), "no encrypted connection"),
        (RemoteDisconnected("without response"), "does it need encryption"),
        (BadStatusLine("\0\0\x18"), "does not speak HTTP: name the port of --metrics-port"),
        (ConnectionRefusedError(), "no server answers"),
        (TimeoutError(), "no answer in 2 s"),
        (ValueError("could not convert"), "is not metrics"),
        (HTTPException("answers 401 Unauthorized"), "answers 401"),
    ],
)
def test_the_reason_of_a_failed_reading_is_shown(monkeypatch, error, sentence):
    def fails(*_):
        raise error

    monkeypatch.setattr("specwhisper_top.figures._fetch", fails)
    (reading,) = read_all(["server:1"], OPEN)
    assert sentence in reading.error
