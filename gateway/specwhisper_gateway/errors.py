"""Errors between an HTTP client and the gateway, and the answer to every error."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple

from specwhisper.errors import (
    InvalidAudio,
    InvalidRequest,
    MessageTooLarge,
    ModelNotFound,
    RecordingsFailed,
    ServerDraining,
    ServerFull,
    SessionExpired,
    SpecWhisperError,
    TargetUnavailable,
    Unauthenticated,
)
from specwhisper.wire.status import PUSHBACK_MS


class InvalidField(InvalidRequest):
    """A form, a message or one of its fields is not supported.

    Parameters
    ----------
    code : OpenAI's code for the error.
    """

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message, param)
        self.code = code


class InvalidUpload(InvalidAudio):
    """The uploaded file is empty or cannot be decoded."""

    param = "file"


class WrongApiKey(SpecWhisperError):
    """The request has no key, or one that the gateway does not know."""


class ClientGone(SpecWhisperError):
    """The client closed its connection before it was answered."""


class ForeignPage(SpecWhisperError):
    """A page of another site tries to use this gateway from its user's browser."""


class IdleTimeout(SpecWhisperError):
    """A client sent nothing for too long, in a session or in the middle of an upload."""


class StorageFull(SpecWhisperError):
    """The gateway's disk has no room for a recording."""


CLIENT_GONE = 499  # nginx's status, for logs and metrics: the client is gone
INVALID = "invalid_request_error"  # OpenAI's type of errors that the caller can mend
BROKEN = "server_error"
TOKEN_REFUSED = (
    "The draft server does not know this gateway's token: ask the operator to check --server-token-file."
)
INTERNAL_ERROR = "The gateway failed to handle this request; its log has the reason."


# Close codes of WebSockets: RFC 6455's, and IANA's for full servers.
POLICY_VIOLATION, TOO_BIG, FAILED, TRY_AGAIN_LATER = 1008, 1009, 1011, 1013


class Answer(NamedTuple):
    """The answer to an error: HTTP status, OpenAI's ``type`` and ``code``, and a WebSocket's close code."""

    status: int
    type: str
    code: str | None = None
    close_code: int = FAILED


ANSWER_OF_ERROR: dict[type[SpecWhisperError], Answer] = {
    InvalidRequest: Answer(HTTPStatus.BAD_REQUEST, INVALID, None, POLICY_VIOLATION),
    InvalidUpload: Answer(HTTPStatus.BAD_REQUEST, INVALID, "invalid_file"),
    ModelNotFound: Answer(HTTPStatus.NOT_FOUND, INVALID, "model_not_found", POLICY_VIOLATION),
    WrongApiKey: Answer(HTTPStatus.UNAUTHORIZED, INVALID, "invalid_api_key", POLICY_VIOLATION),
    ForeignPage: Answer(HTTPStatus.FORBIDDEN, INVALID, "foreign_page"),
    IdleTimeout: Answer(HTTPStatus.REQUEST_TIMEOUT, INVALID, "session_idle", POLICY_VIOLATION),
    MessageTooLarge: Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, INVALID, "request_too_large", TOO_BIG),
    StorageFull: Answer(HTTPStatus.INSUFFICIENT_STORAGE, BROKEN, "storage_full"),
    ServerFull: Answer(HTTPStatus.TOO_MANY_REQUESTS, "requests", "rate_limit_exceeded", TRY_AGAIN_LATER),
    ServerDraining: Answer(HTTPStatus.SERVICE_UNAVAILABLE, BROKEN, "unavailable", TRY_AGAIN_LATER),
    SessionExpired: Answer(HTTPStatus.REQUEST_TIMEOUT, INVALID, "session_expired", TRY_AGAIN_LATER),
    TargetUnavailable: Answer(HTTPStatus.SERVICE_UNAVAILABLE, BROKEN, "unavailable", TRY_AGAIN_LATER),
    ClientGone: Answer(CLIENT_GONE, INVALID),
    RecordingsFailed: Answer(HTTPStatus.BAD_REQUEST, INVALID, None, POLICY_VIOLATION),
    SpecWhisperError: Answer(HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN),  # for the operator to mend
}


def answer_to(error: BaseException) -> Answer:
    for kind in type(error).__mro__:
        if kind in ANSWER_OF_ERROR:
            return ANSWER_OF_ERROR[kind]
    return ANSWER_OF_ERROR[SpecWhisperError]


def headers_of(error: BaseException) -> dict[str, str]:
    """Return an error's headers: when to try again, how to authenticate."""
    if isinstance(error, ServerFull):
        return {"Retry-After": str(max(1, PUSHBACK_MS // 1000))}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, WrongApiKey) else {}


def error_body(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: BaseException) -> dict[str, Any]:
    """Return an error's body; an unexpected error's body holds no details."""
    answer = answer_to(error)
    message = str(error) if isinstance(error, SpecWhisperError) else INTERNAL_ERROR
    if isinstance(error, Unauthenticated):
        message = TOKEN_REFUSED  # else callers would take it for their own key
    param = getattr(error, "param", None)
    code = getattr(error, "code", None) or answer.code or ("invalid_value" if param else None)
    return error_body(message, answer.type, param=param, code=code)
