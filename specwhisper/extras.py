"""Packages that only an extra installs, and the error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specwhisper.errors import MissingExtra

MISSING_EXTRA_STATUS = 2  # exit status of a program, as of a command line that it cannot read


@contextmanager
def needs_extra(user: str, extras: str, *, otherwise: str = "") -> Iterator[None]:
    """Import packages of an extra in the context; name it if one is missing.

    Parameters
    ----------
    user : what needs them: the subject of the sentence.
    extras : as pip reads them, with commas.
    otherwise : what to do without them, for example ``"or try --simulate FILE"``.

    Raises
    ------
    MissingExtra : if a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0].replace("_", "-")
        if package.startswith("specwhisper"):
            raise  # one of our own: no extra installs it
        how = f"pip install 'specwhisper[{extras}]'" + (f", {otherwise}" if otherwise else "")
        raise MissingExtra(f"{user} needs {package}: {how}.") from error
