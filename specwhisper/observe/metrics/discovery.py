"""The list of replicas' metrics addresses, for Prometheus' HTTP discovery."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from http import HTTPStatus

from specwhisper.errors import SpecWhisperError

TARGETS_PATH = "/targets"

# Answers a path and an Accept header with a status, a media type and a body, in a thread.
Page = Callable[[str, str], tuple[HTTPStatus, str, bytes]]


def targets_page(find: Callable[[], Sequence[str]], others: Page) -> Page:
    """Return a page that lists replicas at ``/targets``.

    Parameters
    ----------
    find : returns their ``HOST:PORT`` in the thread of a request; may raise ``SpecWhisperError``.
    others : answers every other path.
    """

    def page(path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        if path != TARGETS_PATH:
            return others(path, accept)
        try:
            body = json.dumps([{"targets": list(find())}])
        except SpecWhisperError as error:  # Prometheus keeps the list that it has
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode()
        return HTTPStatus.OK, "application/json", body.encode()

    return page
