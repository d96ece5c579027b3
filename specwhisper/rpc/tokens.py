"""Bearer tokens of callers, one a line, in a file or in the environment."""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic

from specwhisper.errors import InvalidRequest, LeaseRefused, Unauthenticated
from specwhisper.settings.setting import SECURITY
from specwhisper.validated import naming, option

LIFETIME_S = 60.0

logger = logging.getLogger(__name__)

TOKEN = re.compile(r"[!-~]{16,512}")  # shorter ones can be guessed
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SCHEME = "bearer "
# Variables, which are not shown in the list of processes.
TOKENS = "SPECWHISPER_TOKENS"  # callers' tokens: the lines
TARGET_TOKEN = "SPECWHISPER_TARGET_TOKEN"  # for targets
SERVER_TOKEN = "SPECWHISPER_SERVER_TOKEN"  # for draft servers


class Leases:
    """Grants and checks leases: the right of one caller to open a session at this target.

    The key never leaves this process. Addresses are passed on, cached and reused: a second after a target has
    died, its port may belong to another one, where the lease is not valid.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def grant(self, caller: str) -> str:
        until_ms = str(int((self._clock() + LIFETIME_S) * 1000))
        return f"{until_ms}.{self._signature(until_ms, caller)}"

    def check(self, lease: str, caller: str) -> None:
        """Raise :class:`LeaseRefused` unless this target has granted the caller a lease that still holds."""
        until_ms, _, signature = lease.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(until_ms, caller).encode()):
            raise LeaseRefused("This target has granted you no such lease: ask Locate for one.")
        if self._clock() * 1000 > int(until_ms):
            raise LeaseRefused(f"This lease was valid for {LIFETIME_S:g} s: ask Locate for a new one.")

    def _signature(self, until_ms: str, caller: str) -> str:
        return hmac.digest(self._key, f"{until_ms} {caller}".encode(), "sha256").hex()


class Tokens:
    """Maps tokens to the names of callers; keeps only digests of the tokens.

    Several tokens may have one name, so that a token can be replaced without a moment in which none is valid.

    ``tokens``: name of the caller by token.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._names = _digests(tokens)

    def name_of(self, authorization: str | bytes | None) -> str:
        """Return the caller's name by its ``authorization`` header, in constant time.

        Raise :class:`Unauthenticated` if the header has no known token.
        """
        header = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization or ""
        if not header[: len(SCHEME)].lower() == SCHEME:
            raise Unauthenticated("This server requires a token: send it as 'authorization: Bearer TOKEN'.")
        digest = sha256(header[len(SCHEME) :].strip().encode()).digest()
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            raise Unauthenticated("This server does not know the token.")
        return found


class TokensFile(Tokens):
    """The tokens of a file, which is read again when it has changed.

    A removed token is refused from the next call on. A file that is missing or has a malformed line changes
    nothing: it may be half written. A file without a token refuses every call. Open calls continue to their
    ends. The first reading must succeed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._current_stamp()
        super().__init__(_some(_read(_lines(path), str(path)), str(path)))

    def name_of(self, authorization: str | bytes | None) -> str:
        if (now := self._current_stamp()) != self._stamp:
            self._stamp = now  # before reading: a write in between is another change
            try:
                self._names = _digests(_read(_lines(self._path), str(self._path)))
                logger.info("tokens read", extra={"path": str(self._path), "tokens": len(self._names)})
            except InvalidRequest as error:
                logger.warning("tokens kept", extra={"error": str(error)})
        return super().name_of(authorization)

    def _current_stamp(self) -> tuple[int, int, int] | None:
        """Return values that change with the file, or with the file that a link names."""
        try:
            file = self._path.stat()
        except OSError:
            return None
        return file.st_mtime_ns, file.st_size, file.st_ino


@dataclass(frozen=True, kw_only=True)
class TokensFlag:
    """The flag of the callers' tokens."""

    tokens_file: Path | None = option(
        None,
        "File with the tokens of callers, a line of NAME TOKEN each; default: the lines in "
        "$SPECWHISPER_TOKENS. Other callers are refused.",
        "FILE",
        panel=SECURITY,
    )

    def tokens(self) -> Tokens | None:
        """Read them; ``None`` where there are none."""
        return read_tokens(self.tokens_file)


def read_tokens(path: Path | None) -> Tokens | None:
    """Read the callers' tokens, without a file from the environment variable; ``None`` without either."""
    if path is not None:
        with naming("tokens_file"):
            return TokensFile(path)
    if (lines := os.environ.get(TOKENS)) is not None:  # an empty one must not admit all
        return Tokens(_some(_read(lines.splitlines(), f"${TOKENS}"), f"${TOKENS}"))
    return None


def _digests(tokens: Mapping[str, str]) -> dict[bytes, str]:
    return {sha256(token.encode()).digest(): name for token, name in tokens.items()}


def _some(tokens: dict[str, str], where: str) -> dict[str, str]:
    if not tokens:
        raise InvalidRequest(f"{where} holds no token: every call would be refused.")
    return tokens


def _read(lines: Iterable[str], where: str) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not NAME.fullmatch(words[0]):
            raise InvalidRequest(
                f"{where}, line {number}: write NAME TOKEN, with a name of letters and digits."
            )
        if not TOKEN.fullmatch(words[1]):
            raise InvalidRequest(
                f"{where}, line {number}: a token has 16 to 512 visible ASCII characters; "
                "`openssl rand -hex 32` makes one."
            )
        tokens[words[1]] = words[0]
    return tokens


def read_token(path: Path | None, variable: str) -> str | None:
    """Read the token of a client, from a file or else the environment; ``None`` without either."""
    token = "\n".join(_lines(path)).strip() if path is not None else os.environ.get(variable)
    if token is None:
        return None
    where = str(path) if path is not None else f"${variable}"
    if "\n" in token:
        raise InvalidRequest(f"{where} has several lines: it must hold one token, and nothing else.")
    if not TOKEN.fullmatch(token):
        raise InvalidRequest(f"{where} is not a token of 16 to 512 visible ASCII characters without spaces.")
    return token


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not ASCII text.") from error
