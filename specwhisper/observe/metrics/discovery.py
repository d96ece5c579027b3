"""Where targets that come and go serve their metrics, in the words of Prometheus' HTTP service discovery."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from specwhisper.errors import SpecWhisperError

TARGETS_PATH = "/targets"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]  # of WSGI


def targets_page(find: Callable[[], Sequence[str]], others: App) -> App:
    """Give a WSGI application that tells targets.

    Parameters
    ----------
    find : gives their ``HOST:PORT``, in the thread of a request; may raise ``SpecWhisperError``.
    others : answers what else is asked for.
    """

    def page(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != TARGETS_PATH:
            return others(environ, start_response)
        status, kind = HTTPStatus.OK, "application/json"
        try:
            body = json.dumps([{"targets": list(find())}])
        except SpecWhisperError as error:  # a reader keeps what it knew
            status, kind, body = HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", kind)])
        return [body.encode()]

    return page
