"""What can go wrong between an HTTP client and the gateway, as branches of the one tree of errors."""

from __future__ import annotations

from specwhisper.errors import InvalidAudio, InvalidRequest, SpecWhisperError


class InvalidField(InvalidRequest):
    """A field of the form has a value that cannot be honoured.

    Parameters
    ----------
    param : name of the field.
    code : what is wrong with it, in OpenAI's words.
    """

    def __init__(self, message: str, param: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class InvalidUpload(InvalidAudio):
    """The uploaded file is empty or cannot be decoded."""

    param = "file"


class ModelNotFound(InvalidRequest):
    """The draft server does not have this model."""

    param = "model"


class WrongApiKey(SpecWhisperError):
    """The request carries no key, or none that the gateway knows."""


class ClientGone(SpecWhisperError):
    """The client has closed its connection before it was answered."""


class InvalidEvent(InvalidField):
    """An event on a WebSocket cannot be honoured."""

    def __init__(self, message: str, param: str = "", code: str = "invalid_value") -> None:
        super().__init__(message, param, code)


class ForeignPage(SpecWhisperError):
    """A page of another site tries to use this gateway with its reader's connection."""


class IdleTimeout(SpecWhisperError):
    """A client has said nothing for too long, in a session or in the middle of an upload."""


class HeadTooLarge(InvalidRequest):
    """The head of a request is larger than any request needs."""

    def __init__(self) -> None:
        super().__init__(
            "The request's URL or headers are too large: at most 8 KiB each, 16 KiB and 100 headers in all."
        )


class MalformedRequest(InvalidRequest):
    """What was sent is no HTTP request."""

    def __init__(self) -> None:
        super().__init__("What was sent is no HTTP request, or its head contradicts itself.")


class StorageFull(SpecWhisperError):
    """The gateway has no room on its disk for a recording."""
