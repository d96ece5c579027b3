"""Run a module in a process in which some packages are not installed.

``python -m tests.without torch,transformers specwhisper_draft_server --mode target-only``
"""

import runpy
import sys
from importlib.abc import MetaPathFinder


class Absent(MetaPathFinder):
    """Finds no module of some packages, as if they were not installed."""

    def __init__(self, packages: list[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname, path=None, target=None):
        if any(f"{fullname}.".startswith(f"{package}.") for package in self._packages):
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


if __name__ == "__main__":
    packages, module, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, Absent(packages.split(",")))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
