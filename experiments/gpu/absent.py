"""Do without packages that the servers import but nothing here uses: stand-ins take their place meanwhile."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

# Packages that may be missing, with the modules of them that ours import.
OPTIONAL: dict[str, tuple[str, ...]] = {
    "av": (),
    "soundfile": (),
    "soxr": (),
    "grpc_health": ("grpc_health.v1",),
    "grpc_reflection": ("grpc_reflection.v1alpha",),
}
OURS = (
    "specwhisper.audio.canonical",
    "specwhisper.audio.decode",
    "specwhisper.wire.flac",
    "specwhisper.rpc.serving",
)


class Absent:
    """Anything of a package that is not there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        return Absent(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Let classes be derived from it: who makes one calls what is not there."""
        return ()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Say what would be needed."""
        package = self._name.partition(".")[0]
        raise ImportError(f"{self._name} is needed here, but {package} is not installed.")


class AbsentModule(ModuleType):
    """A module that is not there."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


def import_without() -> list[str]:
    """Import those of our modules that need what is missing, and name it.

    Other libraries look for the same packages, and shall not take stand-ins for them: these are gone
    afterwards.
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
