"""Map errors to gRPC statuses and back: one table for both ends of a call."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import grpc
import grpc.aio

from specwhisper import errors
from specwhisper.errors import OutOfMemory, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.printable import escaped

logger = logging.getLogger(__name__)

# Errors without a row have that of their base.
STATUS_OF_ERROR: dict[type[BaseException], grpc.StatusCode] = {
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.IdleClient: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.SlowReader: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.MessageTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.PairMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CheckpointError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnsafeBind: grpc.StatusCode.FAILED_PRECONDITION,
    ServerFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ServerDraining: grpc.StatusCode.UNAVAILABLE,
    TargetUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.LeaseRefused: grpc.StatusCode.PERMISSION_DENIED,
    OutOfMemory: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.RecordingsFailed: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    BaseException: grpc.StatusCode.INTERNAL,
}

ERROR_KEY = "specwhisper-error"  # trailing metadata: the error's class, more precise than a status
PUSHBACK_KEY = "grpc-retry-pushback-ms"
PUSHBACK_MS = 1_000  # delay before the next try at a full server
PUSHBACK = re.compile("[0-9]{1,7}")  # milliseconds; other values of a peer are ignored
MAX_PUSHBACK_S = 30.0  # longer delays of a peer are shortened
INTERNAL_ERROR = "The server failed to handle this call; its log has the reason."
NO_MEMORY = "This server has no memory for what the call needs: use another server, or retry later."
TOO_LARGE = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")  # gRPC's details
# gRPC's details of a broken connection or stream, under any status: UNKNOWN if it ended during a call,
# INTERNAL if headers cannot be read, and others if a proxy has reset it.
BROKEN = re.compile("Stream removed|parsing HTTP/2|RST_STREAM|Illegal header|Error parsing '[^']*' metadata")
DEFAULT_PORTS = "check the port, by default 50051 of draft servers and 50052 of target servers"
# gRPC's details where what answers, or a broken network, does not begin as HTTP/2 does.
NOT_GRPC = "Expected SETTINGS frame as the first frame"
# gRPC's details of a failed TLS handshake.
UNTRUSTED = re.compile(r"(?<=CERTIFICATE_VERIFY_FAILED: )[^:]+|Hostname Verification Check failed")
MAX_DETAILS_CHARACTERS = 500  # up to 12 bytes each on the wire; 8 KiB of metadata break the call

# How a session or a call ended, in one word.
COMPLETE, CANCELLED, REFUSED, FAILED = OUTCOMES = ("complete", "cancelled", "refused", "failed")
# Statuses of a server or a pair that does not work; others are the caller's to correct.
FAILURES = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
)

# The error for which the server evicted the current call, or none.
evictions: ContextVar[list[SpecWhisperError]] = ContextVar("evictions")


def status_of(error: BaseException) -> grpc.StatusCode:
    return next(STATUS_OF_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_OF_ERROR)


def refusal(error: SpecWhisperError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Return the status, the sentence and the metadata that end a call."""
    metadata = [(ERROR_KEY, type(error).__name__)]
    if isinstance(error, ServerFull):
        metadata.append((PUSHBACK_KEY, str(PUSHBACK_MS)))
    return status_of(error), shorten(str(error)), tuple(metadata)


@asynccontextmanager
async def errors_to_status(
    context: grpc.aio.ServicerContext,
    method: str = "call",
    count_error: Callable[[BaseException], None] = lambda _: None,
) -> AsyncIterator[None]:
    """End the call with the table's status if its handler raises an error.

    A cancelled call stays cancelled. Errors outside the table are logged with their traceback and reach the
    caller as one generic sentence. If the host has no memory left, the caller may try another server.

    ``count_error``: called with each error that ends a call.
    """
    try:
        try:
            yield
        except MemoryError as error:
            logger.error("out of memory", extra={"method": method})
            raise OutOfMemory(NO_MEMORY) from error
    except grpc.aio.AbortError:
        raise  # the handler has set a status itself
    except SpecWhisperError as error:
        code, details, metadata = refusal(error)
        count_error(error)
        # Other reasons may quote the request; a missing target is the operator's concern.
        why = {"reason": details} if isinstance(error, TargetUnavailable) else {}
        facts = {"method": method, "code": code.name, "error": type(error).__name__, "peer": context.peer()}
        logger.info("refused", extra=facts | why)
        await context.abort(code, details, metadata)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the caller has gone; after any other cancellation the call must still be ended
        count_error(error)
        logger.exception("failed", extra={"method": method})
        await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_ERROR)


def error_from_rpc(rpc_error: grpc.aio.AioRpcError, peer: str) -> SpecWhisperError:
    """Restore the error that ended a call to ``peer`` (``HOST:PORT``).

    It has the class and the message of the original if the peer is one of our servers. gRPC's error is its
    cause, which :func:`was_there` asks.
    """
    details = shorten(rpc_error.details() or "")
    trailing = dict(rpc_error.trailing_metadata() or ())
    error = _restored(rpc_error.code(), details, str(trailing.get(ERROR_KEY)), peer)
    error.__cause__ = rpc_error
    pushback_ms = str(trailing.get(PUSHBACK_KEY, ""))
    if PUSHBACK.fullmatch(pushback_ms):
        error.retry_after_s = min(int(pushback_ms) / 1000, MAX_PUSHBACK_S)
    return error


def ended_by_server(rpc_error: grpc.aio.AioRpcError) -> bool:
    """Return whether one of our servers ended the call: the connection is intact."""
    return ERROR_KEY in dict(rpc_error.trailing_metadata() or ())


def refused_handshake(details: str, peer: str) -> str | None:
    """Return why a handshake of TLS or HTTP/2 failed, from gRPC's details; ``None`` if none did."""
    if reason := UNTRUSTED.search(details):
        return (
            f"The certificate of the server at {peer} is not trusted ({reason[0]}): check the authorities "
            "that are to be trusted, and the names in it."
        )
    if NOT_GRPC in details:
        return f"The program at {peer} does not speak gRPC, and may be a gateway: {DEFAULT_PORTS}."
    if "WRONG_VERSION_NUMBER" in details:
        return f"The server at {peer} does not encrypt: connect without encryption, or to another port."
    if "Socket closed" in details or "Connection reset" in details:
        return (
            f"The server at {peer} closes new connections: does it require encryption or a client "
            "certificate, or is it full?"
        )
    return None


def has_broken(rpc_error: grpc.aio.AioRpcError) -> bool:
    """Return whether an open connection broke, and no server ended the call."""
    if ended_by_server(rpc_error):
        return False
    details = rpc_error.details() or ""
    if _never_connected(details):
        return False
    return rpc_error.code() is grpc.StatusCode.UNAVAILABLE or _is_broken(details)


def was_there(error: SpecWhisperError) -> bool:
    """Return whether a server was reached before its call ended with an error.

    A call's deadline is longer than an attempt to connect takes, so a call that exceeded it had reached the
    server.
    """
    cause = error.__cause__
    if not isinstance(cause, grpc.aio.AioRpcError):
        return False
    return ended_by_server(cause) or has_broken(cause) or cause.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def error_named(name: str, message: str) -> SpecWhisperError | None:
    """Return the error of a class by its name; ``None`` if no class has that name."""
    kind = vars(errors).get(name)
    if isinstance(kind, type) and issubclass(kind, SpecWhisperError):
        return kind(message)
    return None


def _restored(code: grpc.StatusCode, details: str, name: str, peer: str) -> SpecWhisperError:
    if (error := error_named(name, details)) is not None:
        return error
    lost = TargetUnavailable(f"The connection to {peer} was lost ({details}); try again.")
    match code:
        case grpc.StatusCode.UNAVAILABLE if _never_connected(details):
            return TargetUnavailable(
                refused_handshake(details, peer) or f"No server answers at {peer}; is it running?"
            )
        case _ if _is_broken(details):
            return lost
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:  # not by us: a server that was stopped
            return lost
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return TargetUnavailable(f"The server at {peer} did not answer in time; is it overloaded?")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if sizes := TOO_LARGE.search(details):
            return errors.MessageTooLarge(
                f"A message of {sizes[1]} bytes exceeds the {sizes[2]} bytes allowed to or from {peer}; "
                "send smaller pieces."
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ServerFull(f"The server at {peer} has no room: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.InvalidRequest(
                f"The server at {peer} does not offer this service: {DEFAULT_PORTS}."
            )
        case grpc.StatusCode.INVALID_ARGUMENT:
            return errors.InvalidRequest(f"The server at {peer} refuses the request: {details}")
        case grpc.StatusCode.FAILED_PRECONDITION:
            return errors.PairMismatch(f"The server at {peer} cannot serve this request: {details}")
        case grpc.StatusCode.UNAUTHENTICATED:
            return errors.Unauthenticated(f"The server at {peer} refuses the token: {details}")
        case _:
            return SpecWhisperError(f"The call to {peer} failed with {code.name}: {details}")


def shorten(details: str) -> str:
    """Keep a sentence on one line and within the limits of metadata."""
    details = escaped(details)
    return details if len(details) <= MAX_DETAILS_CHARACTERS else details[: MAX_DETAILS_CHARACTERS - 1] + "…"


def _is_broken(details: str) -> bool:
    """Return whether gRPC's details name a broken connection.

    A message that is too large ends a connection, too, but does not count.
    """
    return BROKEN.search(details) is not None and TOO_LARGE.search(details) is None


def _never_connected(details: str) -> bool:
    return "failed to connect" in details.lower() or "dns resolution failed" in details.lower()


def outcome_of(error: BaseException) -> str:
    """Return the outcome of a session or call that raised an error."""
    if isinstance(error, GeneratorExit | asyncio.CancelledError):
        error = next(iter(evictions.get([])), error)  # the handler of an evicted call sees a cancellation
    if isinstance(error, GeneratorExit):
        return CANCELLED
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return CANCELLED if task is not None and task.cancelling() else FAILED
    is_failure = isinstance(error, OutOfMemory) or status_of(error) in FAILURES
    return FAILED if is_failure else REFUSED
