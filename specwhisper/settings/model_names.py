"""The names by which clients of other services may request the target."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from specwhisper.errors import ModelNotFound, TargetUnavailable
from specwhisper.settings.setting import SERVING
from specwhisper.validated import NAMED, option, switch

logger = logging.getLogger(__name__)

WHISPER_1 = "whisper-1"  # the name that OpenAI's API uses
MAX_LOGGED = 100  # unknown names: a client may send any number of them
SHOWN_CHARS = 100  # a client may send a name of any length


def served_model_names_option(clients: str) -> Any:
    help = f"Name of the target for {clients}; repeat for more; default: the target's own name and whisper-1."
    flags = ("served-model-name",)
    return option((), help, "NAME", flags=flags, repeats=True, rules=(NAMED,), panel=SERVING)


def strict_model_names_option() -> Any:
    help = "Refuse other model names. Otherwise they are logged and get the target anyway."
    return switch(False, help, panel=SERVING)


class ModelNames:
    """Finds the target by the name in a request; names that aren't served are refused if they are strict.

    ``served``: the names; empty for the target's own, which ``target`` returns, and ``whisper-1``.
    """

    def __init__(
        self, served: tuple[str, ...], *, is_strict: bool, target: Callable[[], Awaitable[str]]
    ) -> None:
        self._served = served
        self._is_strict = is_strict
        self._target = target
        self._logged: set[str] = set()

    async def served(self) -> tuple[str, ...]:
        """Return the names without duplicates; the first one is the default."""
        return tuple(dict.fromkeys(self._served or (await self._target(), WHISPER_1)))

    async def check(self, name: str) -> None:
        """Raise :class:`ModelNotFound` for a name that is not served."""
        if self._is_known(name):
            return
        served = await self.served()
        if name not in served:
            choice = " or ".join(f"'{each}'" for each in served)
            raise ModelNotFound(f"The model '{name[:SHOWN_CHARS]}' does not exist here: request {choice}.")

    async def tolerate(self, name: str) -> None:
        """Log an unknown name; if names are strict, raise :class:`ModelNotFound`.

        A session finds its target by itself, so it neither fails nor waits for this: the target is asked once
        about a name, and a target that does not answer is not a reason to refuse the session.
        """
        if self._is_strict:
            await self.check(name)
        elif name[:SHOWN_CHARS] not in self._logged:
            with suppress(TargetUnavailable):
                await self.resolve(name)

    async def resolve(self, name: str) -> str:
        """Return the served name that a request gets.

        It is the first one if the request names none, or an unknown one. If names are strict, raise
        :class:`ModelNotFound` for an unknown one.
        """
        if self._is_strict and name:
            await self.check(name)
            return name
        if self._is_known(name):
            return name
        served = await self.served()
        if name in served:
            return name
        if name:
            self._log(name[:SHOWN_CHARS], served[0])
        return served[0]

    def _is_known(self, name: str) -> bool:
        """Return whether a name is served, without the target, which may not answer at present."""
        return name in (self._served or (WHISPER_1,))

    def _log(self, name: str, default: str) -> None:
        if name not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(name)
            logger.warning("unknown model name", extra={"model": name, "used": default})
