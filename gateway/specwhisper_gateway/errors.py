"""Errors between an HTTP client and the gateway."""

from __future__ import annotations

from specwhisper.errors import InvalidAudio, InvalidRequest, SpecWhisperError


class InvalidField(InvalidRequest):
    """A field of the form has a value that is not supported.

    Parameters
    ----------
    param : name of the field.
    code : OpenAI's code for the error.
    """

    def __init__(self, message: str, param: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class InvalidUpload(InvalidAudio):
    """The uploaded file is empty or cannot be decoded."""

    param = "file"


class WrongApiKey(SpecWhisperError):
    """The request has no key, or one that the gateway does not know."""


class ClientGone(SpecWhisperError):
    """The client closed its connection before it was answered."""


class InvalidEvent(InvalidField):
    """An event on a WebSocket is not supported."""

    def __init__(self, message: str, param: str = "", code: str = "invalid_value") -> None:
        super().__init__(message, param, code)


class ForeignPage(SpecWhisperError):
    """A page of another site tries to use this gateway from its user's browser."""


class IdleTimeout(SpecWhisperError):
    """A client sent nothing for too long, in a session or in the middle of an upload."""


class StorageFull(SpecWhisperError):
    """The gateway's disk has no room for a recording."""
