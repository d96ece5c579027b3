"""Import the servers without packages that are missing and not used here, by temporary stand-ins."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

# Packages that may be missing, with the submodules that our modules import.
OPTIONAL: dict[str, tuple[str, ...]] = {
    "soundfile": (),
    "soxr": (),
}
OURS = (
    "specwhisper.audio.canonical",
    "specwhisper.audio.decode",
    "specwhisper.wire.flac",
)


class Absent:
    """Any attribute of a missing package."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        return Absent(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Allow classes to derive from it; creating an instance fails."""
        return ()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error that names the missing package."""
        package = self._name.partition(".")[0]
        raise ImportError(f"{self._name} is needed here, but {package} is not installed.")


class AbsentModule(ModuleType):
    """A missing module; :func:`importlib.util.find_spec` does not find it."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


def import_without() -> list[str]:
    """Import our modules that need missing packages; return the names of these packages.

    The stand-ins are removed afterwards, since other libraries look for the same packages.
    """
    missing = [package for package in OPTIONAL if find_spec(package) is None]
    modules = [module for package in missing for module in (package, *OPTIONAL[package])]
    sys.modules |= {module: AbsentModule(module) for module in modules}
    try:
        for module in OURS if missing else ():
            import_module(module)
    finally:
        for module in modules:
            del sys.modules[module]
    return missing
