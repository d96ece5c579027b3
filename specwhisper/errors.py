"""Every error this project raises on purpose.

    SpecWhisperError
    ├── InvalidRequest            the caller sent something that can never work
    │   ├── InvalidAudio          not decodable, empty, wrong rate, a gap in the stream
    │   ├── InvalidCandidates     a token id or position outside its range, a block too long
    │   ├── IdleClient            nothing was sent for too long
    │   │   └── SlowReader        no answer was taken for too long, or too many wait
    │   ├── PortTaken             another one listens where a server is to listen
    │   └── UnsupportedOption     an option this model or this version does not have
    ├── MessageTooLarge           one message exceeds the announced limit
    ├── PairMismatch              this draft cannot work with this target
    ├── CheckpointError           a model that is missing, unsafe or not Whisper
    ├── ServerFull                every slot is taken
    ├── ServerDraining            the server is stopping and takes no new work
    │   └── SessionExpired        a session lasted, or was silent, for too long there
    ├── TargetUnavailable         no target answers, or it went away
    │   ├── LeaseRefused          the right to open a session there is another target's, or has run out
    │   ├── OutOfMemory           it has no memory for what the session needs
    │   └── DeviceFault           its device works no more until its process is restarted
    ├── RecordingsFailed          some recordings of a call failed; the others' results are attached
    ├── Unauthenticated           the caller shows no token that the server knows
    └── UnsafeBind                an address that would expose an unprotected server

Each message is one sentence: what is wrong, where, and what to do about it. The gRPC status that each
one maps to stands in one table, :mod:`specwhisper.wire.status`.
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
    retry_after_s : when to try again, where a server said so.
    """

    retry_after_s: float | None = None


class InvalidRequest(SpecWhisperError):
    """The request can never succeed as it stands."""


class InvalidAudio(InvalidRequest):
    """The audio cannot be decoded, is empty, or does not fit the stream."""


class InvalidCandidates(InvalidRequest):
    """A candidate block breaks the contract: an id or a position out of range, or too many tokens."""


class IdleClient(InvalidRequest):
    """The client of a stream has sent nothing for too long."""


class SlowReader(IdleClient):
    """A caller takes no answers: one has waited for too long, or too many wait."""


class PortTaken(InvalidRequest):
    """Somebody listens already where a server is to listen; the port may be free later."""


class UnsupportedOption(InvalidRequest):
    """The option is not offered by this model or this version."""


class MessageTooLarge(SpecWhisperError):
    """One message is larger than the server accepts."""


class PairMismatch(SpecWhisperError):
    """Draft and target cannot work together."""


class CheckpointError(SpecWhisperError):
    """A checkpoint is missing, unsafe to load, or not a Whisper model."""


class ServerFull(SpecWhisperError):
    """The server holds as many sessions as it can."""


class ServerDraining(SpecWhisperError):
    """The server is stopping and accepts no new session."""


class SessionExpired(ServerDraining):
    """The server has ended a session that lasted, or was silent, for too long: it may go on elsewhere."""


class TargetUnavailable(SpecWhisperError):
    """No target server answers, or the one that did has gone."""


class LeaseRefused(TargetUnavailable):
    """A lease that this target has not given, or not to this caller, or too long ago."""


class OutOfMemory(TargetUnavailable):
    """The target has no memory for what a session needs: it may go on elsewhere."""


class DeviceFault(TargetUnavailable):
    """The target's device has failed in a way that only a new process gets over."""


class RecordingsFailed(SpecWhisperError):
    """Some of a call's recordings could not be transcribed, or prompts continued; the others were.

    Its cause is what the iterable of recordings raised, where that ended the call.

    Attributes
    ----------
    errors : what was wrong, by the recording's place in the call; empty where only the iterable raised.
    results : of all recordings, in their order, with the error in the place of one that failed; empty where
        results were handed over as they finished.
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
        """Make the error of a call of so many recordings, with the first reasons in its message.

        Parameters
        ----------
        ended_by : what the iterable of recordings raised after them.
        kind : what the recordings are.
        """
        told = [f"{len(errors)} of {num_recordings} {kind} failed."] if errors else []
        told += [f"Number {place + 1}: {errors[place]}" for place in sorted(errors)[:MAX_REASONS]]
        if len(errors) > MAX_REASONS:
            told.append(f"And {len(errors) - MAX_REASONS} more.")
        if ended_by is not None:
            reason = str(ended_by) or type(ended_by).__name__
            told.append(f"Number {num_recordings + 1} could not be read: {reason.removesuffix('.')}.")
        if results and len(errors) < num_recordings:
            told.append("The other results are in .results.")
        return cls(" ".join(told), errors, results)


class Unauthenticated(SpecWhisperError):
    """The caller shows no token, or one that the server does not know."""


class UnsafeBind(SpecWhisperError):
    """A listening address would expose an unprotected server to the network."""


GONE = (TargetUnavailable, ServerDraining)  # a server that is away, or stops: what another one may mend
RETRY_ELSEWHERE = (*GONE, ServerFull)  # what another one may mend, or another try
RETRY_OTHER_TARGET = (*RETRY_ELSEWHERE, PairMismatch)  # the same of targets, which differ in their weights


def within_floats(number: Any) -> Any:
    """Return a number, or infinity for one that is too large for a float."""
    try:
        float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    return number


def check_between(name: str, value: float, lowest: float, highest: float) -> None:
    """Refuse a number outside its bounds."""
    value = within_floats(value)
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{name} is {value:g}: it must lie between {lowest:g} and {highest:g}.")
