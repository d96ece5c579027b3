"""The contract on the wire: generated messages, conversions and statuses."""

from specwhisper import __version__
from specwhisper.errors import PairMismatch

# A version is raised with every change by which peers with and without it could misunderstand each other.
PROTOCOL_VERSION = 1  # between draft and target servers
CLIENT_PROTOCOL_VERSION = 1  # between clients, the gateway among them, and draft servers
HEARTBEAT_S = 5.0  # between two heartbeats of either side of a session, and of draft servers to clients
SILENCE_S = 15.0  # a peer that sends no message for this time is lost, even if its connection is open
WELCOME_S = 60.0  # for the first message of a stream: a busy target opens a session between two steps
TENTATIVE = 0.1  # the end of the draft's text
STABLE = 0.5  # the draft's text that four hypotheses in a row have
VERIFIED = 0.9  # the target's own text, which more audio may change
SETTLED = 0.95  # a complete segment; its window may still be judged as failed


def check_protocol(peer: str, version: int, software: str, *, here: str, own: int) -> None:
    """Raise :class:`PairMismatch` if a peer speaks another protocol than this program (``here``)."""
    if version != own:
        raise PairMismatch(
            f"{peer} (specwhisper {software}) speaks protocol {version}, {here} (specwhisper {__version__}) "
            f"speaks {own}: install the same version on both."
        )


def is_stable(stability: float) -> bool:
    """Return whether text is more than tentative; on the wire a stability has single precision."""
    return stability > (TENTATIVE + STABLE) / 2


def is_verified(stability: float) -> bool:
    return stability > (STABLE + VERIFIED) / 2


def is_settled(stability: float) -> bool:
    return stability > (VERIFIED + SETTLED) / 2
