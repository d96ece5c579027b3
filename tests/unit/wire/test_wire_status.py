"""The table of errors and statuses is complete and works in both directions."""

import asyncio

import grpc
import grpc.aio
import pytest

from specwhisper import errors
from specwhisper.wire.status import (
    ERROR_KEY,
    FAILED,
    NO_MEMORY,
    NOT_GRPC,
    PUSHBACK_KEY,
    error_from_rpc,
    errors_to_status,
    has_broken,
    outcome_of,
)

PEER = "127.0.0.1:50052"
ALL_ERRORS = [
    e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.SpecWhisperError)
]


class Aborted(Exception):
    """The exception with which a call's context ends it."""


class FakeContext:
    """Records how a call was ended."""

    def peer(self):
        return "ipv4:127.0.0.1:1"

    async def abort(self, code, details, trailing_metadata=()):
        self.code, self.details, self.metadata = code, details, dict(trailing_metadata)
        raise Aborted


async def ended_by(error):
    context = FakeContext()
    with pytest.raises(Aborted):
        async with errors_to_status(context):
            raise error
    return context


def rpc_error(code, details="details.", metadata=()):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details=details)


@pytest.mark.parametrize("kind", ALL_ERRORS)
async def test_every_error_crosses_the_wire_unchanged(kind):
    context = await ended_by(kind("One clear sentence."))
    restored = error_from_rpc(rpc_error(context.code, context.details, context.metadata.items()), PEER)
    assert type(restored) is kind
    assert str(restored) == "One clear sentence."
    assert (PUSHBACK_KEY in context.metadata) == (kind is errors.ServerFull)


@pytest.mark.parametrize(
    ("said", "retry_after_s"),
    [
        ("250", 0.25),
        ("0", 0.0),
        ("9999999", 30.0),
        ("9" * 400, None),
        ("-1", None),
        ("1_0", None),
        ("1\n", None),
        ("\u0661", None),
        ("", None),
    ],
)
def test_the_pushback_of_a_peer_is_parsed_strictly(said, retry_after_s):
    full = rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "No room.", ((PUSHBACK_KEY, said),))
    assert error_from_rpc(full, PEER).retry_after_s == retry_after_s


async def test_a_cancelled_call_stays_cancelled():
    context, entered = FakeContext(), asyncio.Event()

    async def handler():
        async with errors_to_status(context):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(handler())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not hasattr(context, "code")


async def test_a_cancellation_raised_by_the_handler_is_a_failure():
    context = await ended_by(asyncio.CancelledError())
    assert context.code is grpc.StatusCode.INTERNAL


async def test_a_status_set_by_the_handler_is_kept():
    with pytest.raises(grpc.aio.AbortError):
        async with errors_to_status(FakeContext()):
            raise grpc.aio.AbortError


LOST = f"The connection to {PEER} was lost ("
STATUSES = [
    ("UNAVAILABLE", "failed to connect to all", "TargetUnavailable", f"answers at {PEER}; is it running?"),
    ("UNAVAILABLE", "DNS resolution failed for target", "TargetUnavailable", "No server answers"),
    ("UNAVAILABLE", "Socket closed", "TargetUnavailable", f"{LOST}Socket closed); try again."),
    ("DEADLINE_EXCEEDED", "", "TargetUnavailable", "did not answer in time"),
    ("RESOURCE_EXHAUSTED", "quota", "ServerFull", "no room: quota"),
    ("UNIMPLEMENTED", "Method not found!", "InvalidRequest", f"{PEER} does not offer this service"),
    ("INVALID_ARGUMENT", "odd.", "InvalidRequest", "odd."),
    ("FAILED_PRECONDITION", "odd.", "PairMismatch", "odd."),
    (
        "UNAVAILABLE",
        f"failed to connect: Failed parsing HTTP/2 ({NOT_GRPC})",
        "TargetUnavailable",
        f"The program at {PEER} does not speak gRPC",
    ),
    (
        "RESOURCE_EXHAUSTED",
        "Stream removed (CLIENT: Received message larger than max (9 vs. 8))",
        "MessageTooLarge",
        "9 bytes exceeds the 8 bytes",
    ),
    ("UNKNOWN", "odd.", "SpecWhisperError", f"The call to {PEER} failed with UNKNOWN: odd."),
    ("NOT_FOUND", "odd.", "SpecWhisperError", f"The call to {PEER} failed with NOT_FOUND: odd."),
    ("INTERNAL", "odd.", "SpecWhisperError", f"The call to {PEER} failed with INTERNAL: odd."),
]


@pytest.mark.parametrize(("code", "details", "kind", "sentence"), STATUSES)
def test_statuses_of_others_become_the_nearest_error(code, details, kind, sentence):
    found = rpc_error(grpc.StatusCode[code], details)
    error = error_from_rpc(found, PEER)
    assert type(error).__name__ == kind
    assert sentence in str(error)
    assert has_broken(found) == (LOST in sentence), "others were never open, or are intact"


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("UNKNOWN", "Stream removed"),
        ("UNAVAILABLE", "Failed parsing HTTP/2 (Frame size 7)"),
        ("INTERNAL", "Failed parsing HTTP/2 (Invalid HPACK index received (79))"),
        ("INTERNAL", "Illegal header key: content-t\xb9pe"),
        ("RESOURCE_EXHAUSTED", "Received RST_STREAM with error code 11"),
        ("INTERNAL", "Error parsing 'te' metadata"),
    ],
)
def test_a_broken_connection_is_lost_under_any_status_unless_a_server_ended_the_call(code, details):
    broken = rpc_error(grpc.StatusCode[code], details)
    error = error_from_rpc(broken, PEER)
    assert type(error) is errors.TargetUnavailable and LOST in str(error)
    assert has_broken(broken)
    assert not has_broken(rpc_error(grpc.StatusCode[code], details, [(ERROR_KEY, "TargetUnavailable")]))


async def test_a_host_without_memory_is_no_bug():
    context = await ended_by(MemoryError())
    assert context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    restored = error_from_rpc(rpc_error(context.code, context.details, context.metadata.items()), PEER)
    assert type(restored) is errors.OutOfMemory and str(restored) == NO_MEMORY
    assert outcome_of(restored) == outcome_of(MemoryError()) == FAILED


def test_an_unknown_error_name_is_ignored():
    error = error_from_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, metadata=[(ERROR_KEY, "Exception")]), PEER)
    assert type(error) is errors.SpecWhisperError


async def test_quoted_text_stays_on_one_line():
    """A refusal that is printed must not control the terminal."""
    context = await ended_by(errors.InvalidRequest("mode is 'a\nb\x1b[2J\x7f': choose another."))
    assert context.details == "mode is 'a\\nb\\x1b[2J\\x7f': choose another."
    restored = error_from_rpc(rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "a\rb"), PEER)
    assert "\r" not in str(restored)
