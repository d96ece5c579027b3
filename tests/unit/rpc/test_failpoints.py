"""Failpoints are set by a variable, and only on servers that stay local."""

import signal

import pytest

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.failpoints import VARIABLE, Failpoint, Failpoints, Fault, read_failpoints
from specwhisper.rpc.serving_options import ServingOptions


def read(text: str) -> Failpoints | None:
    return read_failpoints({VARIABLE: text}, "target")


def test_without_the_variable_there_are_no_failpoints():
    assert read_failpoints({}, "target") is None
    assert read(" ") is None


def test_several_failpoints_are_read():
    failpoints = read("verify.before=kill@7, send.after=stop,commit.before=raise@1")
    assert failpoints is not None
    assert failpoints.points == {
        "verify.before": Failpoint(Fault.KILL, 7),
        "send.after": Failpoint(Fault.STOP, 1),
        "commit.before": Failpoint(Fault.RAISE, 1),
    }


@pytest.mark.parametrize(
    "text",
    [
        "verify.before",
        "reply.before=kill",
        "verify.before=die",
        "verify.before=kill@0",
        "verify.before=kill@one",
    ],
)
def test_an_invalid_failpoint_is_refused_with_the_known_ones(text):
    with pytest.raises(
        InvalidRequest, match=r"SPECWHISPER_FAILPOINTS has .*verify\.before.*kill, stop, raise, hang"
    ):
        read(text)
    with pytest.raises(InvalidRequest, match=r"names send\.after twice"):
        read("send.after=kill,send.after=stop@2")


@pytest.mark.parametrize(("fault", "number"), [(Fault.KILL, signal.SIGKILL), (Fault.STOP, signal.SIGSTOP)])
def test_a_failpoint_fails_at_its_hit_and_not_again(fault, number):
    sent = []
    failpoints = Failpoints({"send.after": Failpoint(fault, 3)}, sent.append)
    for hit in range(1, 6):
        failpoints.hit("send.before")
        failpoints.hit("send.after")
        assert sent == [number] * (hit >= 3)


def test_a_server_that_other_hosts_reach_refuses_failpoints():
    with pytest.raises(UnsafeBind, match=VARIABLE):
        ServingOptions(host="0.0.0.0", insecure=True, failpoints=Failpoints({}))
    assert ServingOptions(failpoints=Failpoints({})).failpoints is not None
