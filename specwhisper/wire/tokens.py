"""Who may call a server: bearer tokens, one a line in a file."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from specwhisper.errors import InvalidRequest, Unauthenticated

TOKEN = re.compile(r"[!-~]{16,512}")  # shorter ones can be guessed
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SCHEME = "bearer "


class Tokens:
    """Knows the tokens of callers by name; of the tokens it keeps digests only.

    Several may have one name, so that a token can be changed without a moment in which none is valid.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Take tokens and the names of who holds them."""
        self._names = {sha256(token.encode()).digest(): name for token, name in tokens.items()}

    def name_of(self, authorization: str | bytes | None) -> str:
        """Tell who calls, by the header of that name; :class:`Unauthenticated` where nobody is known by it.

        It takes as long whichever token is right, or none.
        """
        header = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization or ""
        if not header[: len(SCHEME)].lower() == SCHEME:
            raise Unauthenticated("This server asks for a token: send it as 'authorization: Bearer TOKEN'.")
        digest = sha256(header[len(SCHEME) :].strip().encode()).digest()
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            raise Unauthenticated("This server does not know the token.")
        return found


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens, each behind the name of who holds it; lines with # are remarks."""
    tokens: dict[str, str] = {}
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not NAME.fullmatch(words[0]):
            raise InvalidRequest(
                f"{path}, line {number}: write NAME TOKEN, with a name of letters and digits."
            )
        if not TOKEN.fullmatch(words[1]):
            raise InvalidRequest(
                f"{path}, line {number}: a token has 16 to 512 visible ASCII characters; "
                "`openssl rand -hex 32` makes one."
            )
        tokens[words[1]] = words[0]
    if not tokens:
        raise InvalidRequest(f"{path} holds no token: nobody could call the server.")
    return Tokens(tokens)


def read_token(path: Path | None, variable: str) -> str | None:
    """Read what a client shows: the file's only word, or else the environment's; ``None`` without either."""
    token = "".join(_lines(path)).strip() if path is not None else os.environ.get(variable)
    if token is None:
        return None
    if not TOKEN.fullmatch(token):
        where = str(path) if path is not None else f"${variable}"
        raise InvalidRequest(f"{where} is no token: it has 16 to 512 visible ASCII characters and no spaces.")
    return token


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not ASCII text.") from error
