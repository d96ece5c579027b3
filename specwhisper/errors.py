"""The errors that this project raises on purpose.

    SpecWhisperError
    ├── InvalidRequest            the caller sent something that can never work
    │   ├── InvalidAudio          not decodable, empty, wrong rate, a gap in the stream
    │   ├── InvalidCandidates     a token id or position outside its range, a block too long
    │   ├── IdleClient            a client sent no message for too long
    │   │   └── SlowReader        a client read no response for too long, or too many wait
    │   ├── PortTaken             the address of a server is in use
    │   ├── ModelNotFound         a model name that the server does not serve
    │   └── UnsupportedOption     an option this model or this version does not have
    │       └── MissingExtra      a package that is not installed
    ├── MessageTooLarge           one message exceeds the announced limit
    ├── PairMismatch              two versions, vocabularies or weights do not fit
    ├── CheckpointError           a model that is missing, unsafe or not Whisper
    ├── ServerFull                every slot is in use
    ├── ServerDraining            the server is stopping and takes no new work
    │   └── SessionExpired        a session lasted, or was silent, for too long there
    ├── TargetUnavailable         no target answers, or the connection to it was lost
    │   ├── LeaseRefused          the lease is of another target, or has run out
    │   ├── OutOfMemory           it has no memory for the session
    │   └── DeviceFault           its device does not work until its process is restarted
    ├── DiarizationFailed         the process that finds speakers has ended
    ├── RecordingsFailed          some recordings of a call failed; the others' results are attached
    ├── Unauthenticated           the caller sent no token that the server knows
    └── UnsafeBind                an address that would expose an unprotected server

Each message is one sentence: what is wrong, where, and what to do about it. One table maps each error to its
gRPC status: :mod:`specwhisper.wire.status`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MAX_REASONS = 5  # that the message of RecordingsFailed names


class SpecWhisperError(Exception):
    """Base of every error this project raises on purpose.

    Attributes
    ----------
    retry_after_s : when to try again, if the server named a time.
    exit_status : the status of a program that it ends; 2 if its command line or installation must change.
    """

    retry_after_s: float | None = None
    exit_status = 1


class InvalidRequest(SpecWhisperError):
    """The request can never succeed as it stands.

    Attributes
    ----------
    param : the option or field to blame, as its user calls it; ``None`` if there isn't one.
    """

    param: str | None = None

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.param = param or self.param


class InvalidAudio(InvalidRequest):
    """The audio cannot be decoded, is empty, or does not fit the stream."""


class InvalidCandidates(InvalidRequest):
    """A candidate block breaks the contract.

    An id or a position is out of range, or it has too many tokens.
    """


class IdleClient(InvalidRequest):
    """The client of a stream has sent no message for too long."""


class SlowReader(IdleClient):
    """A client reads no responses: one has waited for too long, or too many wait."""


class PortTaken(InvalidRequest):
    """The address of a server is in use; it may be free later."""


class ModelNotFound(InvalidRequest):
    """The request names a model that the server does not serve."""

    param = "model"


class UnsupportedOption(InvalidRequest):
    """The option is not offered by this model or this version."""


class MissingExtra(UnsupportedOption, ImportError):
    """A package is not installed; the message names the extra that installs it."""

    exit_status = 2


class MessageTooLarge(SpecWhisperError):
    """One message is larger than the server accepts."""


class PairMismatch(SpecWhisperError):
    """Two sides differ in what they must share: version, vocabulary or weights."""


class CheckpointError(SpecWhisperError):
    """A checkpoint is missing, unsafe to load, or not a Whisper model."""


class ServerFull(SpecWhisperError):
    """The server holds as many sessions as it can."""


class ServerDraining(SpecWhisperError):
    """The server is stopping and accepts no new session."""


class SessionExpired(ServerDraining):
    """The server ended a session that lasted, or was silent, for too long.

    The session may continue elsewhere.
    """


class TargetUnavailable(SpecWhisperError):
    """No target server answers, or the connection to it was lost."""


class LeaseRefused(TargetUnavailable):
    """The lease is of another target or another caller, or has run out."""


class OutOfMemory(TargetUnavailable):
    """The target has no memory for a session, which may continue elsewhere."""


class DeviceFault(TargetUnavailable):
    """The target's device does not work until its process is restarted."""


class DiarizationFailed(SpecWhisperError):
    """The process that finds the speakers of a recording has ended."""


class RecordingsFailed(SpecWhisperError):
    """Some recordings or prompts of a call failed; the others did not.

    If the iterable of recordings raised an error and so ended the call, that is the cause of this one.

    Attributes
    ----------
    errors : by the recording's index in the call; empty if only the iterable raised an error.
    results : all recordings' results, in their order, with an error for each that failed; empty if results
        were yielded as they finished.
    """

    def __init__(
        self, message: str, errors: Mapping[int, Exception] | None = None, results: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.errors = dict(errors or {})
        self.results = list(results)

    @classmethod
    def of(
        cls,
        errors: Mapping[int, Exception],
        num_recordings: int,
        results: Sequence[Any] = (),
        *,
        ended_by: Exception | None = None,
        kind: str = "recordings",
    ) -> RecordingsFailed:
        """Return the error of a call; its message has the first reasons.

        Parameters
        ----------
        ended_by : the error that the iterable of recordings raised after them.
        kind : "recordings", or another word for them in the message.
        """
        reasons = [f"{len(errors)} of {num_recordings} {kind} failed."] if errors else []
        reasons += [f"Number {place + 1}: {errors[place]}" for place in sorted(errors)[:MAX_REASONS]]
        if len(errors) > MAX_REASONS:
            reasons.append(f"And {len(errors) - MAX_REASONS} more.")
        if ended_by is not None:
            reason = str(ended_by) or type(ended_by).__name__
            reasons.append(f"Number {num_recordings + 1} could not be read: {reason.removesuffix('.')}.")
        if results and len(errors) < num_recordings:
            reasons.append("The other results are in .results.")
        return cls(" ".join(reasons), errors, results)


class Unauthenticated(SpecWhisperError):
    """The caller sent no token, or one that the server does not know."""


class UnsafeBind(SpecWhisperError):
    """A listening address would expose an unprotected server to the network."""


GONE = (TargetUnavailable, ServerDraining)  # the server is lost, or stops
RETRY_ELSEWHERE = (*GONE, ServerFull)  # another server may succeed, or another try
RETRY_OTHER_TARGET = (*RETRY_ELSEWHERE, PairMismatch)  # targets also differ in their weights


def within_floats(number: Any) -> Any:
    """Return a number, or infinity for one that is too large for a float."""
    try:
        float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    return number


def check_between(name: str, value: float, lowest: float, highest: float) -> None:
    """Raise ``InvalidRequest`` for a number outside its bounds, both included."""
    value = within_floats(value)
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{name} is {value:g}: it must lie between {lowest:g} and {highest:g}.")
